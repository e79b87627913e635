// What the parts of the Python module share. The Python side of it is python/linnet.
#pragma once
#include <linnet/arrays.h>
#include <linnet/tensor.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace nb = nanobind;

namespace linnet::python {

using namespace nb::literals;

// Computes while other threads of Python run, and returns what `function` does.
template <class Function>
auto without_gil(const Function& function) {
  const nb::gil_scoped_release free;
  return function();
}

// Sets variables from a dict of options: read_options(given, "threads", options.threads, "device", options.device).
template <class To, class... Rest>
void read_options(const nb::dict& given, const char* name, To& to, Rest&... rest) {
  to = nb::cast<To>(given[name]);
  if constexpr (sizeof...(rest) > 0) read_options(given, rest...);
}

// A dict of pairs of a name and a value.
template <class Pairs>
nb::dict to_dict_of(const Pairs& pairs) {
  nb::dict found;
  for (const auto& [name, value] : pairs) found[name.c_str()] = value;
  return found;
}

// A function of the module.
template <class Function>
struct Row {
  const char* name;
  Function function;
  const char* doc;
};

// The name of an object's class.
std::string class_name(nb::handle object);

// The innermost line of Python that is not of the package itself; error messages of ops name it.
SourceLine python_line();

// A tensor, or a parameter that stands for its value in the graph that is recorded.
struct Operand {
  nb::handle source;
  // Throws Error(kUser) for a parameter outside of a recording, or of another model.
  Tensor tensor() const;
  At at() const { return At(tensor(), python_line()); }
};
inline Tensor or_none(const std::optional<Operand>& operand) { return operand ? operand->tensor() : Tensor{}; }

nb::tuple to_tuple(const Shape& shape);
Shape to_shape(const std::vector<int64_t>& sizes);
// "float32", "float64", "int32", "uint8".
const char* numpy_name(DType dtype);
// Those names and what users call them otherwise ("f32", "float", numpy.float32). Error(kUser) for others.
DType to_dtype(nb::handle name);
// (dtype, shape) and back.
TensorType to_type(nb::handle pair);
nb::tuple to_tuple(const TensorType& type);
InputTypes to_types(const nb::dict& types);
nb::dict to_dict(const InputTypes& types);
nb::list to_list(const std::vector<InputTypes>& shapes);

using AnyArray = nb::ndarray<nb::ro>;
// Elements as `dtype`, row-major, from anything with __dlpack__ or the buffer protocol, numbers and lists:
// python/linnet/arrays.py. `name` is for messages.
struct Converted {
  TensorType type;
  AnyArray array;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(array.data()), type.bytes()}; }
  template <class T>
  std::vector<T> values() const {
    const auto* data = static_cast<const T*>(array.data());
    return {data, data + array.size()};
  }
};
Converted convert(nb::handle value, std::optional<DType> dtype, const std::string& name);
// A batch from a dict. Element types are those of `types` where it has the name.
Arrays to_arrays(const nb::dict& batch, const InputTypes& types);
// NumPy arrays with memory of their own.
nb::dict to_dict(const Arrays& arrays);
// A NumPy array over memory that `owner` keeps.
nb::object numpy_view(void* data, const TensorType& type, nb::handle owner, bool writable);
nb::object numpy_copy(std::span<const std::byte> bytes, const TensorType& type, bool writable = true);
// A NumPy array of the values, which it takes over.
nb::object numpy_of(std::vector<float> values, const Shape& shape);

// Whether Python is being asked to stop (Ctrl-C): throws its exception. The GIL is held.
void check_signals();

// An object whose threads a fork does not copy: in the child it is neither used nor destroyed.
class ForkGuard {
 public:
  ForkGuard();
  bool is_child() const;

 private:
  long process_;
};

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

// Any Python object that may stand for a tensor; the function that takes it says what is wrong with others.
template <>
struct type_caster<linnet::python::Operand> {
  NB_TYPE_CASTER(linnet::python::Operand, const_name("Tensor | Parameter | LayerParameter"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept;
  static handle from_cpp(const linnet::python::Operand& operand, rv_policy, cleanup_list*) noexcept {
    return handle(operand.source).inc_ref();
  }
};

}  // namespace nanobind::detail
