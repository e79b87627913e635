// Converts Python arrays to the library's, and back.
#include <linnet/error.h>
#include <unistd.h>
#include "api/python/python.h"
#include "base/fail.h"

namespace linnet::python {
namespace {
template <class T> nb::object numpy_over(std::vector<T> values, const TensorType& type, bool writable = true) {
  auto* owned = new std::vector<T>(std::move(values));
  const nb::capsule owner(owned, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
  return numpy_view(owned->data(), type, owner, writable);
}
}  // namespace

std::string class_name(nb::handle object) {
  if (PyType_Check(object.ptr())) return "class " + nb::cast<std::string>(object.attr("__name__"));
  return nb::cast<std::string>(object.type().attr("__name__"));
}

nb::tuple to_tuple(const Shape& shape) {
  nb::list sizes;
  for (const int64_t size : shape.sizes()) sizes.append(size);
  return nb::tuple(sizes);
}

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
  nb::list found;
  for (const InputTypes& types : shapes) found.append(to_dict(types));
  return found;
}

Converted convert(nb::handle value, std::optional<DType> wanted, const std::string& name) {
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
    const auto known = types.find(name);
    const Converted converted =
        convert(value, known == types.end() ? std::nullopt : std::optional(known->second.dtype), "\"" + name + "\"");
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

ForkGuard::ForkGuard() : process_(::getpid()) {}
bool ForkGuard::is_child() const { return ::getpid() != process_; }
}  // namespace linnet::python
