// The largest elements of rows.
#pragma once
#include <cstdint>

namespace linnet {

// For each row of x [rows, width]: its k <= width largest elements, falling, equal ones in order of their index, in
// values [rows, k] and ids [rows, k]. NaN counts as -inf.
void top_k_rows(int64_t rows, int64_t width, int64_t k, const float* x, float* values, int32_t* ids);

}  // namespace linnet
