// The rounding of weights to integers, for packed_weight.cpp.
#pragma once
#include <cstdint>

namespace linnet {

// Rounds `count` finite numbers to multiples of `scale` within [low, high], ties to even. Returns the sum of squared
// errors, in squared steps. Codes and sum are the same on every instruction set.
float round_codes(const float* w, int64_t count, float scale, float low, float high, int8_t* codes);

}  // namespace linnet
