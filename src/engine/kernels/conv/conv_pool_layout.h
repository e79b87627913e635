// Sizes of what the kernels of conv_pool.h keep in their workspace. See conv_pool-inl.h for what is in it.
#pragma once
#include <algorithm>
#include <cstdint>
#include "base/numbers.h"
#include "engine/kernels/conv/conv_pool.h"

namespace linnet::conv_pool_layout {

constexpr int64_t kLanes = 16;  // filters are padded to a multiple of this: the longest vector of any instruction set
constexpr int64_t kStrip = 16;  // pooled columns that are computed from one strip of transformed pixels
constexpr int64_t kTaps = 9;
constexpr int64_t kSums = 12;  // transformed taps: three rows of four

constexpr int64_t padded_filters(const ConvPoolShape& s) { return round_up(s.filters, kLanes); }

// One channel of an image with zeros around it. A strip reads two vectors past its own columns.
constexpr int64_t row_floats(const ConvPoolShape& s) { return 2 * round_up(s.pooled_width(), kStrip) + 16; }
constexpr int64_t plane_rows(const ConvPoolShape& s) { return 2 * s.pooled_height() + 2; }
constexpr int64_t plane_floats(const ConvPoolShape& s) { return plane_rows(s) * row_floats(s); }
constexpr int64_t image_floats(const ConvPoolShape& s) { return s.channels * plane_floats(s); }
constexpr int64_t strip_floats(const ConvPoolShape& s) { return plane_rows(s) * s.channels * 4 * kStrip; }

// The images of one task: enough work to be worth handing out. Shape alone decides.
constexpr int64_t groups(const ConvPoolShape& s) { return std::clamp<int64_t>((s.images + 7) / 8, 1, 32); }

// Forward: packed weights, then for each thread an image and a strip.
constexpr int64_t weight_floats(const ConvPoolShape& s) {
  return padded_filters(s) * (s.channels * (kSums + kTaps) + 1);
}
// Weight gradient: for each group its sums, for each thread an image, one plane's pairs of rows, and slopes.
constexpr int64_t sum_floats(const ConvPoolShape& s) { return padded_filters(s) * (s.channels * kTaps + 1); }
constexpr int64_t pair_row(const ConvPoolShape& s) { return 2 * round_up(2 * s.pooled_width() + 2, 16); }
constexpr int64_t pair_floats(const ConvPoolShape& s) { return (plane_rows(s) - 1) * pair_row(s); }
// And where the gradient of the pooled images is a product, that of a few images: enough to share each read of the
// factor, few enough for the L2 cache.
constexpr int64_t kProductImages = 5;
constexpr int64_t slope_floats(const ConvPoolShape& s) {
  return round_up(kProductImages * s.pooled_height() * s.pooled_width() * s.filters, kLanes);
}
constexpr int64_t gradient_scratch_floats(const ConvPoolShape& s) {
  return image_floats(s) + pair_floats(s) + slope_floats(s);
}
// Input gradient: for each thread an image with its channels last, zeros around it.
constexpr int64_t gradient_floats(const ConvPoolShape& s) {
  return round_up((s.height + 2) * (s.width + 2) * s.channels, kLanes);
}

}  // namespace linnet::conv_pool_layout
