// Arrays of Python to those of the library, and back.
#include <linnet/error.h>
#include <unistd.h>

#include <limits>
#include <span>

#include "api/python/python.h"

namespace linnet::python {
namespace {

// What the library has for these elements where nothing else is asked for; nothing for complex numbers and the like.
std::optional<DType> natural(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  if (dtype.lanes != 1 || dtype.bits > 64) return {};
  switch (static_cast<Code>(dtype.code)) {
    case Code::Float:
      return dtype.bits >= 16 ? std::optional(DType::kF32) : std::nullopt;
    case Code::Bfloat:
      return DType::kF32;
    case Code::Int:
      return DType::kI32;
    case Code::UInt:
      return dtype.bits == 8 ? DType::kU8 : DType::kI32;
    case Code::Bool:
      return DType::kU8;
    default:
      return {};
  }
}

// What is no array becomes one by NumPy: numbers, lists, bfloat16 arrays of ml_dtypes, tensors that need a detach().
AnyArray array_of(nb::handle value, const std::string& name) {
  AnyArray array;
  if (nb::try_cast(value, array)) return array;
  PyErr_Clear();
  if (nb::hasattr(value, "detach") && nb::try_cast(value.attr("detach")(), array)) return array;
  if (PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()) || PyDict_Check(value.ptr()) || value.is_none())
    fail_user(name + " is a " + class_name(value) + "; an array is wanted");
  try {
    const nb::module_ numpy = nb::module_::import_("numpy");
    nb::object made = numpy.attr("asarray")(value);
    if (nb::cast<std::string>(made.attr("dtype").attr("name")) == "bfloat16") made = made.attr("astype")("float32");
    if (nb::try_cast(made, array)) return array;
  } catch (nb::python_error& error) {
    fail_user(name + " is no array: " + nb::cast<std::string>(nb::str(error.value())));
  }
  fail_user(name + " is no array of numbers");
}

// A NumPy array over the elements of `array`; those of bfloat16, which NumPy does not know, as float32 in a copy.
nb::object to_numpy(const AnyArray& array) {
  const bool is_bf16 = static_cast<nb::dlpack::dtype_code>(array.dtype().code) == nb::dlpack::dtype_code::Bfloat;
  std::vector<size_t> shape;
  std::vector<int64_t> strides;
  for (size_t axis = 0; axis < array.ndim(); ++axis) {
    shape.push_back(array.shape(axis));
    strides.push_back(array.stride(axis));
  }
  const nb::ndarray<nb::numpy, nb::ro> elements(array.data(), shape.size(), shape.data(), nb::handle(), strides.data(),
                                                is_bf16 ? nb::dtype<uint16_t>() : array.dtype());
  const nb::object view = nb::cast(elements, nb::rv_policy::reference);
  if (!is_bf16) return view;
  const nb::object high_bits = nb::module_::import_("numpy").attr("left_shift")(view, 16, "dtype"_a = "uint32");
  return high_bits.attr("view")("float32");
}

// Throws where an integer does not fit.
template <class To>
void check_fit(const nb::object& array, const std::string& name) {
  if (nb::cast<std::string>(array.attr("dtype").attr("name")) == numpy_name(dtype_of<To>())) return;
  const nb::object below = array.attr("__lt__")(int64_t{std::numeric_limits<To>::min()});
  const nb::object above = array.attr("__gt__")(int64_t{std::numeric_limits<To>::max()});
  const nb::object misfits = array[below | above];
  if (nb::len(misfits) == 0) return;
  const nb::object first = misfits[0];
  fail_user(name + " has the integer " + nb::cast<std::string>(nb::str(first)) + ", which does not fit " +
            numpy_name(dtype_of<To>()));
}

// A NumPy array that owns the values.
template <class T>
nb::object numpy_over(std::vector<T> values, const TensorType& type, bool writable = true) {
  auto* owned = new std::vector<T>(std::move(values));
  const nb::capsule owner(owned, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
  return numpy_view(owned->data(), type, owner, writable);
}

}  // namespace

std::string class_name(nb::handle object) { return nb::cast<std::string>(object.type().attr("__name__")); }

nb::tuple to_tuple(const Shape& shape) {
  nb::list sizes;
  for (const int64_t size : shape.sizes()) sizes.append(size);
  return nb::tuple(sizes);
}

Shape to_shape(const std::vector<int64_t>& sizes) { return Shape(std::span<const int64_t>(sizes)); }

const char* numpy_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kF64:
      return "float64";
    case DType::kI32:
      return "int32";
    case DType::kU8:
      return "uint8";
    case DType::kBF16:
      break;
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
  fail_user("there is no element type \"" + name + "\"; there are float32, int32 and uint8");
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
  const AnyArray given = array_of(value, name);
  if (given.device_type() != nb::device::cpu::value)
    fail_user(name + " lies on a device; give an array of the host, for example tensor.cpu()");
  const std::optional<DType> natural_type = natural(given.dtype());
  if (!natural_type) fail_user(name + " has elements of a type that is not supported; convert it to float32 or int32");
  if (given.ndim() > static_cast<size_t>(kMaxRank))
    fail_user(name + " has " + std::to_string(given.ndim()) + " axes; there are at most " + std::to_string(kMaxRank));
  Converted result{.type = {wanted.value_or(*natural_type), {}}, .given = given, .array = {}};
  for (size_t axis = 0; axis < given.ndim(); ++axis)
    result.type.shape.push_back(static_cast<int64_t>(given.shape(axis)));
  nb::object array = to_numpy(given);
  const char* dtype = numpy_name(result.type.dtype);
  if (!is_float(result.type.dtype)) {
    if (is_float(*natural_type) && given.size() > 0)
      fail_user(name + " has fractional numbers where " + dtype + " is wanted");
    result.type.dtype == DType::kI32 ? check_fit<int32_t>(array, name) : check_fit<uint8_t>(array, name);
  }
  array = array.attr("astype")(dtype, "order"_a = "C", "copy"_a = false);
  result.array = nb::cast<AnyArray>(array);
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
