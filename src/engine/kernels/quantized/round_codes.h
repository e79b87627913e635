// The rounding of weights to integers, for packed_weight.cpp.
#pragma once
#include <cstdint>

namespace linnet {

// Rounds `count` finite numbers to multiples of `scale` within [low, high], ties to even. Returns the sum of squared
// errors, in squared steps. Codes and sum are the same on every instruction set.
float round_codes(const float* w, int64_t count, float scale, float low, float high, int8_t* codes);

// Up to 16 columns of a matrix [depth, ...], whose rows are `stride` apart, as rows of a panel of WeightFormat::kInt8
// (packed_weight.h), each by its largest magnitude, which becomes `most`. codes[round up(depth, 32) * 16], scales[16],
// sums[16]. The codes are those of round_codes() with the scale.
void round_columns(const float* w, int64_t stride, int64_t columns, int64_t depth, float most, int8_t* codes,
                   float* scales, int32_t* sums);

}  // namespace linnet
