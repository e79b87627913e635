// The Python module linnet._linnet: errors, Python source lines, arrays, and the list of its parts.
#include <linnet/error.h>
#include <linnet/version.h>
#include <pthread.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include "api/python/tree.h"
#include "base/fail.h"
#include "formats/packed_model.h"
#include "models/families/gguf.h"

namespace linnet::python {
namespace {
template <class T> nb::object numpy_over(std::vector<T> values, const TensorType& type, bool writable = true) {
  auto* owned = new std::vector<T>(std::move(values));
  const nb::capsule owner(owned, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
  return numpy_view(owned->data(), type, owner, writable);
}

// Classes of python/linnet/errors.py by ErrorKind, once the package has set them; they live as long as the process.
std::array<PyObject*, 5> error_classes{};

std::atomic<int> running_calls = 0;  // threads in a PythonCall
std::atomic<bool> is_ending = false;
thread_local struct {
  int calls = 0;         // nested
  bool is_free = false;  // of the GIL
} this_thread;

// The package's folder, with a final slash; frames in it are not the user's.
std::string package_folder() {
  const auto file = nb::cast<std::string>(nb::module_::import_("linnet").attr("__file__"));
  return file.substr(0, file.rfind('/') + 1);
}
}  // namespace

std::string class_name(nb::handle object) {
  if (PyType_Check(object.ptr())) return "class " + nb::cast<std::string>(object.attr("__name__"));
  return nb::cast<std::string>(object.type().attr("__name__"));
}

nb::tuple to_tuple(const Shape& shape) { return nb::tuple(to_list_of(shape.sizes(), std::identity())); }

Shape to_shape(const std::vector<int64_t>& sizes) { return Shape(std::span<const int64_t>(sizes)); }

const char* numpy_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kF64: return "float64";
    case DType::kI32: return "int32";
    case DType::kU8: return "uint8";
    case DType::kBF16: break;
  }
  return "bfloat16";
}

DType to_dtype(nb::handle value) {
  std::string name = nb::hasattr(value, "__name__") ? nb::cast<std::string>(value.attr("__name__"))
                                                    : nb::cast<std::string>(nb::str(value));
  if (name.starts_with("torch.")) name = name.substr(6);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kU8})
    if (name == numpy_name(dtype) || name == dtype_name(dtype)) return dtype;
  if (name == "float") return DType::kF32;
  if (name == "int") return DType::kI32;
  fail_user("there is no element type \"", name, "\"; there are float32, int32 and uint8");
}

TensorType to_type(nb::handle pair) {
  const auto entries = nb::cast<nb::tuple>(pair);
  return {to_dtype(entries[0]), to_shape(nb::cast<std::vector<int64_t>>(entries[1]))};
}

nb::tuple to_tuple(const TensorType& type) { return nb::make_tuple(numpy_name(type.dtype), to_tuple(type.shape)); }

InputTypes to_types(const nb::dict& types) {
  InputTypes found;
  for (const auto& [name, type] : types) found[nb::cast<std::string>(name)] = to_type(type);
  return found;
}

nb::dict to_dict(const InputTypes& types) {
  nb::dict found;
  for (const auto& [name, type] : types) found[name.c_str()] = to_tuple(type);
  return found;
}

nb::list to_list(const std::vector<InputTypes>& shapes) {
  return to_list_of(shapes, [](const InputTypes& types) { return to_dict(types); });
}

Converted convert(nb::handle value, std::optional<DType> wanted, const std::string& name) {
  const PythonCall call;
  const nb::object array = nb::module_::import_("linnet.arrays")
                               .attr("convert")(value, wanted ? nb::cast(numpy_name(*wanted)) : nb::none(), name);
  Converted result{.type = {to_dtype(array.attr("dtype")), {}}, .array = nb::cast<AnyArray>(array)};
  for (size_t axis = 0; axis < result.array.ndim(); ++axis)
    result.type.shape.push_back(static_cast<int64_t>(result.array.shape(axis)));
  return result;
}

Arrays to_arrays(const nb::dict& batch, const InputTypes& types) {
  Arrays arrays;
  for (const auto& [key, value] : batch) {
    const auto name = nb::cast<std::string>(nb::str(key));
    const TensorType* known = find_value(types, name);
    const Converted converted = convert(value, known ? std::optional(known->dtype) : std::nullopt, "\"" + name + "\"");
    arrays.set_bytes(name, converted.type, converted.bytes());
  }
  return arrays;
}

nb::object numpy_view(void* data, const TensorType& type, nb::handle owner, bool writable) {
  std::vector<size_t> shape;
  for (const int64_t size : type.shape.sizes()) shape.push_back(static_cast<size_t>(size));
  const nb::dlpack::dtype dtype = type.dtype == DType::kF32   ? nb::dtype<float>()
                                  : type.dtype == DType::kF64 ? nb::dtype<double>()
                                  : type.dtype == DType::kI32 ? nb::dtype<int32_t>()
                                                              : nb::dtype<uint8_t>();
  const auto view = [&]<class... Access>() {
    return nb::cast(nb::ndarray<nb::numpy, Access...>(data, shape.size(), shape.data(), owner, nullptr, dtype),
        nb::rv_policy::reference);
  };
  return writable ? view() : view.operator()<nb::ro>();
}

nb::dict to_dict(const Arrays& arrays) {
  nb::dict found;
  for (const auto& [name, type] : arrays.types()) found[name.c_str()] = numpy_copy(arrays.bytes(name), type);
  return found;
}

nb::object numpy_copy(std::span<const std::byte> bytes, const TensorType& type, bool writable) {
  return numpy_over(std::vector(bytes.begin(), bytes.end()), type, writable);
}

nb::object numpy_of(std::vector<float> values, const Shape& shape) {
  return numpy_over(std::move(values), {DType::kF32, shape});
}

bool& PythonCall::is_free() { return this_thread.is_free; }

PythonCall::PythonCall(const char* refusal) {
  if (this_thread.calls++ > 0) return;
  ++running_calls;  // before the look at is_ending: end_calls() looks the other way round
  if (!is_ending) return;
  --this_thread.calls, --running_calls;
  if (refusal) fail_user(refusal);
  if (PyGILState_GetThisThreadState() && !is_free()) PyEval_SaveThread();
  while (true) ::pause();
}

PythonCall::~PythonCall() { running_calls -= --this_thread.calls == 0 ? 1 : 0; }

void add_errors(nb::module_& module) {
  module.def(
      "set_errors", [](nb::object user, nb::object shape, nb::object numeric, nb::object machine, nb::object internal) {
        error_classes = {user.release().ptr(), shape.release().ptr(), numeric.release().ptr(), machine.release().ptr(),
            internal.release().ptr()};
      });
  module.def("line", [] { return python_line().text(); });
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      PyObject* known = error_classes[static_cast<size_t>(error.kind())];
      PyErr_SetString(known ? known : PyExc_RuntimeError, error.what());
    }
  });
}

SourceLine python_line() {
  static const std::string& package = *new std::string(package_folder());
  nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame.is_valid() && !frame.is_none()) {
    const auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const nb::object code = frame.attr("f_code");
    const auto file = nb::cast<std::string>(code.attr("co_filename"));
    if (!file.starts_with(package))
      return intern_source_line(file, static_cast<uint32_t>(PyFrame_GetLineNumber(const_cast<PyFrameObject*>(raw))),
          nb::cast<std::string>(code.attr("co_name")));
    frame = frame.attr("f_back");
  }
  return intern_source_line("python", 0, "");
}

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}
}  // namespace linnet::python

// Registers no destructor of the module's static objects: daemon threads compute until the process has ended.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" __attribute__((visibility("hidden"))) int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }

NB_MODULE(_linnet, module) {
  using namespace linnet::python;
  nb::set_leak_warnings(false);  // programs may keep a learner or op until they end
  linnet::keep_signal_handlers();
  linnet::use_packed_models();
  linnet::use_gguf_models();
  module.doc() = "The compiled part of linnet.";
  module.attr("version") = linnet::version();
  module.def("end_calls", [] { return this_thread.calls = 1, is_ending = true, running_calls.load(); });
  ::pthread_atfork(nullptr, nullptr, [] { running_calls = this_thread.calls > 0 ? 1 : 0; });  // a child has one thread
  add_errors(module);
  add_tensors(module);
  add_operations(module);
  add_optimizers(module);
  add_layers(module);
  add_data(module);
  add_learner(module);
  add_generator(module);
  add_own_op(module);
  add_models(module);
  add_tasks(module);
}
