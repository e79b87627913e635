#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include "base/fail.h"
#include "base/numbers.h"
#include "formats/tensor_file.h"

namespace linnet {
namespace {
struct Row {
  FileDType dtype;
  const char* name;
  size_t size;
  std::optional<DType> engine = {};
};
constexpr Row kRows[] = {{FileDType::kF64, "F64", 8, DType::kF64}, {FileDType::kF32, "F32", 4, DType::kF32},
    {FileDType::kF16, "F16", 2}, {FileDType::kBF16, "BF16", 2}, {FileDType::kI64, "I64", 8},
    {FileDType::kU64, "U64", 8}, {FileDType::kI32, "I32", 4, DType::kI32}, {FileDType::kU32, "U32", 4},
    {FileDType::kI16, "I16", 2}, {FileDType::kU16, "U16", 2}, {FileDType::kI8, "I8", 1},
    {FileDType::kU8, "U8", 1, DType::kU8}, {FileDType::kBool, "BOOL", 1}};

const Row& row(FileDType dtype) { return kRows[static_cast<size_t>(dtype)]; }

uint16_t to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000)  // NaN: keeps what of its payload has room, and stays one
    return static_cast<uint16_t>(sign | 0x7c00 | std::max<uint32_t>(magnitude >> 13 & 1023, 1));
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and above round to infinity
  if (magnitude < 0x38800000) {                       // below 2^-14: units of 2^-24; the sum's rounding is to even
    const auto rounded = static_cast<uint32_t>(std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p24F));
    return static_cast<uint16_t>(sign | rounded);
  }
  const uint32_t even = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (even - (112U << 23)) >> 13);
}

float from_bfloat(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

uint16_t to_bfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | ((bits >> 16 & 127) ? 0 : 1));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class To> struct Cast {
  To operator()(auto value) const { return static_cast<To>(value); }
};

// `data` may be unaligned.
template <class From, class To, class Convert = Cast<To>>
void read_each(const std::byte* data, int64_t count, To* out, Convert convert = {}) {
  for (int64_t i = 0; i < count; ++i) out[i] = convert(number_at<From>(data + static_cast<size_t>(i) * sizeof(From)));
}

template <class To, class Convert = Cast<To>>
void write_each(const float* values, int64_t count, std::byte* out, Convert convert = {}) {
  for (int64_t i = 0; i < count; ++i) {
    const To value = convert(values[i]);
    std::memcpy(out + static_cast<size_t>(i) * sizeof value, &value, sizeof value);
  }
}
}  // namespace

const char* file_dtype_name(FileDType dtype) { return row(dtype).name; }
size_t file_dtype_size(FileDType dtype) { return row(dtype).size; }

std::optional<FileDType> file_dtype(std::string_view name) {
  for (const Row& row : kRows)
    if (name == row.name) return row.dtype;
  return std::nullopt;
}

FileDType file_dtype(DType dtype) {
  for (const Row& row : kRows)
    if (row.engine == dtype) return row.dtype;
  fail_internal("no file type for ", dtype_name(dtype));
}

bool is_float(FileDType dtype) { return dtype <= FileDType::kBF16; }
std::optional<DType> engine_dtype(FileDType dtype) { return row(dtype).engine; }

void read_floats(FileDType dtype, const std::byte* data, int64_t count, float* out) {
  if (count == 0) return;  // memcpy() takes no null
  switch (dtype) {
    case FileDType::kF64: return read_each<double>(data, count, out);
    case FileDType::kF32: std::memcpy(out, data, static_cast<size_t>(count) * sizeof *out); return;
    case FileDType::kF16: return read_each<uint16_t>(data, count, out, half_to_float);
    case FileDType::kBF16: return read_each<uint16_t>(data, count, out, from_bfloat);
    default: fail_internal("read_floats of ", file_dtype_name(dtype));
  }
}

void write_floats(FileDType dtype, const float* values, int64_t count, std::byte* out) {
  switch (dtype) {
    case FileDType::kF64: return write_each<double>(values, count, out);
    case FileDType::kF32: std::memcpy(out, values, static_cast<size_t>(count) * sizeof *values); return;
    case FileDType::kF16: return write_each<uint16_t>(values, count, out, to_half);
    case FileDType::kBF16: return write_each<uint16_t>(values, count, out, to_bfloat);
    default: fail_internal("write_floats of ", file_dtype_name(dtype));
  }
}

void read_integers(FileDType dtype, const std::byte* data, int64_t count, int64_t* out) {
  switch (dtype) {
    case FileDType::kI64: return read_each<int64_t>(data, count, out);
    case FileDType::kU64: return read_each<uint64_t>(data, count, out);
    case FileDType::kI32: return read_each<int32_t>(data, count, out);
    case FileDType::kU32: return read_each<uint32_t>(data, count, out);
    case FileDType::kI16: return read_each<int16_t>(data, count, out);
    case FileDType::kU16: return read_each<uint16_t>(data, count, out);
    case FileDType::kI8: return read_each<int8_t>(data, count, out);
    case FileDType::kU8: return read_each<uint8_t>(data, count, out);
    case FileDType::kBool:
      return read_each<uint8_t>(data, count, out, [](uint8_t value) -> int64_t { return value != 0; });
    default: fail_internal("read_integers of ", file_dtype_name(dtype));
  }
}
}  // namespace linnet
