// Arrays of Python to those of the library, and back.
#include <linnet/error.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "api/python/python.h"

namespace linnet::python {
namespace {

enum class Source { kF16, kBF16, kF32, kF64, kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kBool };

std::optional<Source> source_of(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  if (dtype.lanes != 1) return {};
  switch (static_cast<Code>(dtype.code)) {
    case Code::Float:
      if (dtype.bits == 16) return Source::kF16;
      if (dtype.bits == 32) return Source::kF32;
      if (dtype.bits == 64) return Source::kF64;
      return {};
    case Code::Bfloat:
      return dtype.bits == 16 ? std::optional(Source::kBF16) : std::nullopt;
    case Code::Int:
      return dtype.bits == 8    ? Source::kI8
             : dtype.bits == 16 ? Source::kI16
             : dtype.bits == 32 ? Source::kI32
                                : Source::kI64;
    case Code::UInt:
      return dtype.bits == 8    ? Source::kU8
             : dtype.bits == 16 ? Source::kU16
             : dtype.bits == 32 ? Source::kU32
                                : Source::kU64;
    case Code::Bool:
      return Source::kBool;
    default:
      return {};
  }
}

// What the library has for elements of this type where nothing else is asked for.
DType natural(Source source) {
  switch (source) {
    case Source::kF16:
    case Source::kBF16:
    case Source::kF32:
    case Source::kF64:
      return DType::kF32;
    case Source::kU8:
    case Source::kBool:
      return DType::kU8;
    default:
      return DType::kI32;
  }
}

float from_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

float from_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude =
      exponent == 31  ? (fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity())
      : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                      : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// The element as a double, or as an integer where it is one: 64 bits do not go through a double.
struct Element {
  double real;
  int64_t whole;
};

Element read(const void* at, Source source) {
  const auto as = [&](auto zero) {
    std::memcpy(&zero, at, sizeof zero);
    return zero;
  };
  const auto whole = [](int64_t value) { return Element{static_cast<double>(value), value}; };
  switch (source) {
    case Source::kF16:
      return {from_f16(as(uint16_t{})), 0};
    case Source::kBF16:
      return {from_bf16(as(uint16_t{})), 0};
    case Source::kF32:
      return {as(float{}), 0};
    case Source::kF64:
      return {as(double{}), 0};
    case Source::kI8:
      return whole(as(int8_t{}));
    case Source::kI16:
      return whole(as(int16_t{}));
    case Source::kI32:
      return whole(as(int32_t{}));
    case Source::kI64:
      return whole(as(int64_t{}));
    case Source::kU16:
      return whole(as(uint16_t{}));
    case Source::kU32:
      return whole(as(uint32_t{}));
    case Source::kU64:
      return whole(static_cast<int64_t>(std::min<uint64_t>(as(uint64_t{}), std::numeric_limits<int64_t>::max())));
    default:
      return whole(as(uint8_t{}));
  }
}

bool is_integer(Source source) { return source > Source::kF64; }

template <class To>
void copy_integers(const std::vector<const std::byte*>& rows, Source source, To* to, const std::string& name) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t value = read(rows[i], source).whole;
    if (value < std::numeric_limits<To>::min() || value > std::numeric_limits<To>::max())
      fail_user(name + " has the integer " + std::to_string(value) + ", which does not fit " +
                numpy_name(dtype_of<To>()));
    to[i] = static_cast<To>(value);
  }
}

// The addresses of all elements in row-major order.
std::vector<const std::byte*> addresses(const AnyArray& array) {
  std::vector<const std::byte*> found;
  found.reserve(array.size());
  const size_t rank = array.ndim(), size = array.itemsize();
  std::vector<size_t> index(rank, 0);
  for (size_t i = 0; i < array.size(); ++i) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < rank; ++axis) offset += static_cast<int64_t>(index[axis]) * array.stride(axis);
    found.push_back(static_cast<const std::byte*>(array.data()) + offset * static_cast<int64_t>(size));
    for (size_t axis = rank; axis-- > 0;)
      if (++index[axis] < array.shape(axis))
        break;
      else
        index[axis] = 0;
  }
  return found;
}

bool is_dense(const AnyArray& array) {
  int64_t expected = 1;
  for (size_t axis = array.ndim(); axis-- > 0;) {
    if (array.shape(axis) != 1 && array.stride(axis) != expected) return false;
    expected *= static_cast<int64_t>(array.shape(axis));
  }
  return true;
}

bool is_same(Source source, DType dtype) {
  return (source == Source::kF32 && dtype == DType::kF32) || (source == Source::kF64 && dtype == DType::kF64) ||
         (source == Source::kI32 && dtype == DType::kI32) ||
         ((source == Source::kU8 || source == Source::kBool) && dtype == DType::kU8);
}

// What is no array becomes one by NumPy: numbers, lists, bfloat16 arrays of ml_dtypes, tensors that need a detach().
AnyArray array_of(nb::handle value, const std::string& name) {
  AnyArray array;
  if (nb::try_cast(value, array)) return array;
  PyErr_Clear();
  if (nb::hasattr(value, "detach") && nb::try_cast(value.attr("detach")(), array)) return array;
  if (PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()) || PyDict_Check(value.ptr()) || value.is_none())
    fail_user(name + " is a " + nb::cast<std::string>(nb::str(value.type().attr("__name__"))) + "; an array is wanted");
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

}  // namespace

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

InputTypes to_types(const nb::dict& types) {
  InputTypes found;
  for (const auto& [name, type] : types) {
    const auto pair = nb::cast<nb::tuple>(type);
    found[nb::cast<std::string>(name)] = {to_dtype(pair[0]), to_shape(nb::cast<std::vector<int64_t>>(pair[1]))};
  }
  return found;
}

nb::dict to_dict(const InputTypes& types) {
  nb::dict found;
  for (const auto& [name, type] : types)
    found[name.c_str()] = nb::make_tuple(numpy_name(type.dtype), to_tuple(type.shape));
  return found;
}

Converted convert(nb::handle value, std::optional<DType> wanted, const std::string& name) {
  const AnyArray array = array_of(value, name);
  if (array.device_type() != nb::device::cpu::value)
    fail_user(name + " lies on a device; give an array of the host, for example tensor.cpu()");
  const std::optional<Source> source = source_of(array.dtype());
  if (!source) fail_user(name + " has elements of a type that is not supported; convert it to float32 or int32");
  if (array.ndim() > static_cast<size_t>(kMaxRank))
    fail_user(name + " has " + std::to_string(array.ndim()) + " axes; there are at most " + std::to_string(kMaxRank));
  Converted result;
  result.type.dtype = wanted.value_or(natural(*source));
  for (size_t axis = 0; axis < array.ndim(); ++axis)
    result.type.shape.push_back(static_cast<int64_t>(array.shape(axis)));
  result.bytes.resize(result.type.bytes());
  if (array.size() == 0) return result;
  if (is_same(*source, result.type.dtype) && is_dense(array)) {
    std::memcpy(result.bytes.data(), array.data(), result.bytes.size());
    return result;
  }
  if (!is_float(result.type.dtype) && !is_integer(*source))
    fail_user(name + " has fractional numbers where " + numpy_name(result.type.dtype) + " is wanted");
  const std::vector<const std::byte*> elements = addresses(array);
  switch (result.type.dtype) {
    case DType::kI32:
      copy_integers(elements, *source, reinterpret_cast<int32_t*>(result.bytes.data()), name);
      break;
    case DType::kU8:
      copy_integers(elements, *source, reinterpret_cast<uint8_t*>(result.bytes.data()), name);
      break;
    case DType::kF64:
      for (size_t i = 0; i < elements.size(); ++i)
        reinterpret_cast<double*>(result.bytes.data())[i] = read(elements[i], *source).real;
      break;
    default:
      for (size_t i = 0; i < elements.size(); ++i)
        reinterpret_cast<float*>(result.bytes.data())[i] = static_cast<float>(read(elements[i], *source).real);
  }
  return result;
}

Arrays to_arrays(const nb::dict& batch, const InputTypes& types) {
  Arrays arrays;
  for (const auto& [key, value] : batch) {
    const auto name = nb::cast<std::string>(nb::str(key));
    const auto known = types.find(name);
    const Converted converted =
        convert(value, known == types.end() ? std::nullopt : std::optional(known->second.dtype), "\"" + name + "\"");
    arrays.set_bytes(name, converted.type, converted.bytes);
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
  if (writable)
    return nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner, nullptr, dtype),
                    nb::rv_policy::reference);
  return nb::cast(nb::ndarray<nb::numpy, nb::ro>(data, shape.size(), shape.data(), owner, nullptr, dtype),
                  nb::rv_policy::reference);
}

nb::dict to_dict(const Arrays& arrays) {
  nb::dict found;
  for (const auto& [name, type] : arrays.types()) {
    const std::span<const std::byte> bytes = arrays.bytes(name);
    auto* owned = new std::vector<std::byte>(bytes.begin(), bytes.end());
    const nb::capsule owner(owned, [](void* memory) noexcept { delete static_cast<std::vector<std::byte>*>(memory); });
    found[name.c_str()] = numpy_view(owned->data(), type, owner, true);
  }
  return found;
}

nb::object numpy_of(std::vector<float> values, const Shape& shape) {
  auto* owned = new std::vector<float>(std::move(values));
  const nb::capsule owner(owned, [](void* memory) noexcept { delete static_cast<std::vector<float>*>(memory); });
  return numpy_view(owned->data(), {DType::kF32, shape}, owner, true);
}

ForkGuard::ForkGuard() : process_(::getpid()) {}
bool ForkGuard::is_child() const { return ::getpid() != process_; }

}  // namespace linnet::python
