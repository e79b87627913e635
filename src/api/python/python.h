// Shared by the parts of the Python module, whose Python side is python/linnet.
#pragma once
#include <linnet/arrays.h>
#include <linnet/tensor.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include "base/fail.h"
#include "base/process.h"

namespace nb = nanobind;

namespace linnet::python {
using namespace nb::literals;

// A thread in C++ that calls Python's code or takes the GIL. Python ends such a thread, if it comes late, by unwinding
// its stack, which C++ makes an abort. So python/linnet/calls.py calls end_calls() at exit, until no other thread is
// in a call; one that begins a call later sleeps for ever, as in Python 3.14, or with a `refusal` throws Error(kUser).
class PythonCall {
 public:
  explicit PythonCall(const char* refusal = nullptr);
  ~PythonCall();
  PythonCall(const PythonCall&) = delete;

  static bool& is_free();  // whether this thread has given up the GIL: Python's stable ABI does not tell
};

struct WithGil {
  ~WithGil() { PythonCall::is_free() = was_free; }
  const PythonCall call;
  const nb::gil_scoped_acquire gil;
  const bool was_free = std::exchange(PythonCall::is_free(), false);
};

struct WithoutGil {
  WithoutGil() { PythonCall::is_free() = true; }
  ~WithoutGil() {
    const PythonCall call;
    free.reset();
    PythonCall::is_free() = false;
  }
  const DefaultFloats floats;
  std::optional<nb::gil_scoped_release> free{std::in_place};
};

template <class Function> auto without_gil(const Function& function) {
  const WithoutGil free;
  return function();
}

// Sets variables from a dict of options: read_options(given, "threads", options.threads, "device", options.device).
template <class To, class... Rest> void read_options(const nb::dict& given, const char* name, To& to, Rest&... rest) {
  const nb::object value = given[name];
  if (!nb::try_cast(value, to)) fail_user(name, " = ", nb::cast<std::string>(nb::repr(value)), " is not taken");
  if constexpr (sizeof...(rest) > 0) read_options(given, rest...);
}

template <class Pairs> nb::dict to_dict_of(const Pairs& pairs) {
  nb::dict found;
  for (const auto& [name, value] : pairs) found[name.c_str()] = value;
  return found;
}

template <class Items, class Function> nb::list to_list_of(const Items& items, const Function& to) {
  nb::list found;
  for (const auto& item : items) found.append(to(item));
  return found;
}

template <class Function> struct Row {
  const char* name;
  Function function;
  const char* doc;
};

std::string class_name(nb::handle object);

// The innermost Python line outside the package; ops' error messages name it.
SourceLine python_line();

// A tensor, or a parameter that stands for its value in the recorded graph.
struct Operand {
  nb::handle source;
  // Throws Error(kUser) for a parameter outside a recording, or of another model.
  Tensor tensor() const;
  At at() const { return At(tensor(), python_line()); }
  At number() const;  // an operand of arithmetic: whole numbers as float32
};
inline Tensor or_none(const std::optional<Operand>& operand) { return operand ? operand->tensor() : Tensor{}; }

nb::tuple to_tuple(const Shape& shape);
Shape to_shape(const std::vector<int64_t>& sizes);
const char* numpy_name(DType dtype);  // "float32", "float64", "int32", "uint8"
// Accepts those four and other names ("f32", "float", numpy.float32). Error(kUser) for unknown names.
DType to_dtype(nb::handle name);
// (dtype, shape) and back.
TensorType to_type(nb::handle pair);
nb::tuple to_tuple(const TensorType& type);
InputTypes to_types(const nb::dict& types);
nb::dict to_dict(const InputTypes& types);
nb::list to_list(const std::vector<InputTypes>& shapes);

using AnyArray = nb::ndarray<nb::ro>;
// Row-major elements of type `dtype`, from numbers, lists, or objects with __dlpack__ or the buffer protocol
// (python/linnet/arrays.py). `name` is for messages.
struct Converted {
  TensorType type;
  AnyArray array;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(array.data()), type.bytes()}; }
  template <class T> std::vector<T> values() const {
    const auto* data = static_cast<const T*>(array.data());
    return {data, data + array.size()};
  }
};
Converted convert(nb::handle value, std::optional<DType> dtype, const std::string& name);
// A batch from a dict, with the element types of `types` if it has the name.
Arrays to_arrays(const nb::dict& batch, const InputTypes& types);
nb::dict to_dict(const Arrays& arrays);  // NumPy arrays with memory of their own
// A NumPy array over memory that `owner` keeps.
nb::object numpy_view(void* data, const TensorType& type, nb::handle owner, bool writable);
nb::object numpy_copy(std::span<const std::byte> bytes, const TensorType& type, bool writable = true);
nb::object numpy_of(std::vector<float> values, const Shape& shape);  // takes over the values

// Throws Python's exception if it must stop (Ctrl-C). Requires the GIL.
void check_signals();
inline void let_stop() {
  const WithGil gil;
  check_signals();
}

// Takes the GIL and calls `callback`. Returns false if Python returns False or throws; `thrown` keeps the exception.
template <class Callback> bool goes_on(std::exception_ptr& thrown, const Callback& callback) {
  const WithGil gil;
  try {
    check_signals();
    return !callback().is(nb::handle(Py_False));
  } catch (...) {
    thrown = std::current_exception();
    return false;
  }
}

void add_errors(nb::module_& module);
void add_tensors(nb::module_& module);
void add_operations(nb::module_& module);
void add_layers(nb::module_& module);
void add_data(nb::module_& module);
void add_optimizers(nb::module_& module);
void add_learner(nb::module_& module);
void add_generator(nb::module_& module);
void add_own_op(nb::module_& module);
void add_models(nb::module_& module);
void add_tasks(nb::module_& module);
}  // namespace linnet::python

namespace nanobind::detail {
// Accepts any Python object; the function that takes it reports wrong ones.
template <> struct type_caster<linnet::python::Operand> {
  NB_TYPE_CASTER(linnet::python::Operand, const_name("Tensor | Parameter | LayerParameter | numpy.ndarray"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept;
  static handle from_cpp(const linnet::python::Operand& operand, rv_policy, cleanup_list*) noexcept {
    return handle(operand.source).inc_ref();
  }
};
}  // namespace nanobind::detail
