// Element types in files. Those in which the engine does not compute are converted on reading and writing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include "engine/ir/tensor_type.h"

namespace linnet {
enum class FileDType : uint8_t { kF64, kF32, kF16, kBF16, kI64, kU64, kI32, kU32, kI16, kU16, kI8, kU8, kBool };

const char* file_dtype_name(FileDType dtype);  // "F32", "BF16", as safetensors writes them
size_t file_dtype_size(FileDType dtype);       // bytes of one element
std::optional<FileDType> file_dtype(std::string_view name);
bool is_float(FileDType dtype);
FileDType file_dtype(DType dtype);                   // the same bits
std::optional<DType> engine_dtype(FileDType dtype);  // the same bits; empty: the engine does not compute in it

// `data` may be unaligned. F16 and BF16 are exact; F64 is rounded to nearest even.
void read_floats(FileDType dtype, const std::byte* data, int64_t count, float* out);
// For the four float types; rounds to nearest even, NaN stays NaN, values beyond the largest become infinity.
void write_floats(FileDType dtype, const float* values, int64_t count, std::byte* out);
// Integers and truth values. Values beyond 64 signed bits wrap, so user-facing callers check the range.
void read_integers(FileDType dtype, const std::byte* data, int64_t count, int64_t* out);
}  // namespace linnet
