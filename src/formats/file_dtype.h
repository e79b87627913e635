// Element types as files of other programs hold them. The engine computes in fewer (engine/ir/tensor_type.h); the
// others are converted while they are read and written.
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
std::optional<DType> engine_dtype(FileDType dtype);  // the same bits; empty for what the engine does not compute in

// `count` elements at `data`, which need not be aligned. F16 and BF16 are exact; F64 is rounded to nearest even.
void read_floats(FileDType dtype, const std::byte* data, int64_t count, float* out);
// The inverse for the four float types; rounds to nearest even, NaN stays NaN, beyond the largest becomes infinity.
void write_floats(FileDType dtype, const float* values, int64_t count, std::byte* out);
// Integers and truth values. User-facing callers check the range: what does not fit 64 signed bits wraps.
void read_integers(FileDType dtype, const std::byte* data, int64_t count, int64_t* out);

}  // namespace linnet
