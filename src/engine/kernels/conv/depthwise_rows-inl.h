// Depthwise filters of n x n, n odd, over images with n / 2 pixels of zeros around them. Those that visit every pixel
// compute two rows of results at a time: each pixel of their n + 1 rows is loaded once for all of its products. With
// stride 2, patches of 2 x 2 results follow each other, with all channels, so that images are read from end to end.
#include <array>
#include "engine/kernels/conv/convolution-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
using namespace convolution;

// A row of an image, `step` floats between pixels.
template <class T> struct PixelRow {
  T* first;
  int64_t step;
  HWY_INLINE T* pixel(int64_t j) const { return first + j * step; }
};

template <class T> struct ImageRows {
  T* image;
  int64_t height, width, channels;
  // Row i; outside of the image, the pixel `otherwise` repeated.
  HWY_INLINE PixelRow<T> row(int64_t i, T* otherwise) const {
    if (i < 0 || i >= height) return {otherwise, 0};
    return {image + i * width * channels, channels};
  }
  // Rows [i, i + kCount), from channel `channel` on.
  template <size_t kCount>
  HWY_INLINE std::array<PixelRow<T>, kCount> rows(int64_t i, int64_t channel, T* otherwise) const {
    std::array<PixelRow<T>, kCount> all;
    for (size_t a = 0; a < kCount; ++a) {
      all[a] = row(i + static_cast<int64_t>(a), otherwise);
      if (all[a].step > 0) all[a].first += channel;
    }
    return all;
  }
};

// Prefetches column j of the two rows below `row`, for the next results. pitch: pixels between rows.
HWY_INLINE void FetchBelow(const PixelRow<const float>& row, int64_t j, int64_t pitch, int64_t first) {
  const float* below = row.pixel(j + pitch) + first;
  hwy::Prefetch(below);
  hwy::Prefetch(below + pitch * row.step);
}

// Two rows of results from n + 1 rows of the source, `pitch` pixels apart, for one vector of channels. weight: tap (0,
// 0), `tap_step` floats between taps. finish: maps a sum to what is stored.
template <int n, class At, class Finish> HWY_INLINE void DepthwiseTwoRows(
    const std::array<PixelRow<const float>, n + 1>& source, int64_t pitch, int64_t width, const float* weight,
    int64_t tap_step, const std::array<PixelRow<float>, 2>& result, const At& at, const Finish& finish) {
  constexpr int kHalf = n / 2;
  Floats sums[2][n];  // [b]: of the result whose tap b meets this column
#pragma GCC unroll 2
  for (int r = 0; r < 2; ++r)
#pragma GCC unroll 7
    for (int b = 0; b < n; ++b) sums[r][b] = SetAll(0);
  Floats kept[3][3];  // filters that fit into registers
#pragma GCC unroll 9
  for (int k = 0; k < 9; ++k) kept[k / 3][k % 3] = n == 3 ? at.load(weight + k * tap_step) : SetAll(0);
  // Result r of a column meets row r + a under row a of the filter.
  const auto add = [&](int r, int a, Floats x) LINNET_LAMBDA {
#pragma GCC unroll 7
    for (int b = 0; b < n; ++b) {
      const Floats w = n == 3 ? kept[a][b] : at.load(weight + (n * a + b) * tap_step);
      sums[r][b] = b == 0 && a == 0 ? hn::Mul(x, w) : hn::MulAdd(x, w, sums[r][b]);
    }
  };
  for (int64_t j = 0; j < width; ++j) {
    FetchBelow(source[n], j, pitch, at.first);
    add(0, 0, at.load(source[0].pixel(j)));
    const Floats second = at.load(source[1].pixel(j));
    add(1, 0, second);
    add(0, 1, second);
    constexpr int kTogether = n < 7 ? n - 2 : 1;  // the largest in a loop, for a short program
#pragma GCC unroll 1
    for (int first = 2; first < n; first += kTogether)
#pragma GCC unroll 3
      for (int a = first; a < first + kTogether; ++a) {
        const Floats x = at.load(source[a].pixel(j));
        add(0, a, x);
        add(1, a - 1, x);
      }
    add(1, n - 1, at.load(source[n].pixel(j)));
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) {
      if (j >= kHalf) at.store(finish(sums[r][n - 1]), result[r].pixel(j - kHalf));
#pragma GCC unroll 7
      for (int b = n - 1; b > 0; --b) sums[r][b] = sums[r][b - 1];
    }
  }
#pragma GCC unroll 3
  for (int k = 0; k < kHalf; ++k)
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r)
      if (const int64_t j = width - 1 - k; j >= 0) at.store(finish(sums[r][kHalf + 1 + k]), result[r].pixel(j));
}

// A patch of 2 x 2 results of a filter with stride 2. source: its pixels.
template <int n> struct DepthwisePatch {
  static constexpr int kStride = 2, kSide = n + kStride;
  const float* source[kSide][kSide];
  float* result[2][2];

  // For one vector of channels. weight, tap_step, finish: see DepthwiseTwoRows.
  template <class At, class Finish>
  HWY_INLINE void Run(const float* weight, int64_t tap_step, const At& at, const Finish& finish) const {
    Floats w[n][n], sums[2][2];
#pragma GCC unroll 5
    for (int a = 0; a < n; ++a)
#pragma GCC unroll 5
      for (int b = 0; b < n; ++b) w[a][b] = at.load(weight + (n * a + b) * tap_step);
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) sums[r][0] = sums[r][1] = SetAll(0);
#pragma GCC unroll 7
    for (int a = 0; a < kSide; ++a)
#pragma GCC unroll 7
      for (int b = 0; b < kSide; ++b) {
        const Floats x = at.load(source[a][b]);
#pragma GCC unroll 2
        for (int r = 0; r < 2; ++r)
#pragma GCC unroll 2
          for (int c = 0; c < 2; ++c) {
            const int tap_row = a - r * kStride, tap_column = b - c * kStride;
            if (tap_row >= 0 && tap_row < n && tap_column >= 0 && tap_column < n)
              sums[r][c] = hn::MulAdd(x, w[tap_row][tap_column], sums[r][c]);
          }
      }
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r)
#pragma GCC unroll 2
      for (int c = 0; c < 2; ++c) at.store(finish(sums[r][c]), result[r][c]);
  }
};

// sums[tap] (+)= the products of two rows of dy and four rows of x, for one vector of channels.
template <class At> HWY_INLINE void DepthwiseTwoRowSums(const std::array<PixelRow<const float>, 4>& x_rows,
    const std::array<PixelRow<const float>, 2>& dy, int64_t width, float* sums, int64_t tap_step, bool accumulate,
    const At& at) {
  Floats total[3][3], slope[2][3];  // slope: of the last column, this one and the next
#pragma GCC unroll 9
  for (int k = 0; k < 9; ++k) total[k / 3][k % 3] = accumulate ? at.load(sums + k * tap_step) : SetAll(0);
#pragma GCC unroll 2
  for (int r = 0; r < 2; ++r) slope[r][0] = SetAll(0), slope[r][1] = at.load(dy[r].pixel(0));
  const auto add = [&](int64_t j) LINNET_LAMBDA {
    FetchBelow(x_rows[3], j, width, at.first);
    Floats x[4];
#pragma GCC unroll 4
    for (int a = 0; a < 4; ++a) x[a] = at.load(x_rows[a].pixel(j));
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) {
#pragma GCC unroll 3
      for (int a = 0; a < 3; ++a)
#pragma GCC unroll 3
        for (int b = 0; b < 3; ++b) total[a][b] = hn::MulAdd(x[r + a], slope[r][2 - b], total[a][b]);
      slope[r][0] = slope[r][1], slope[r][1] = slope[r][2];
    }
  };
  for (int64_t j = 0; j + 1 < width; ++j) {
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) {
      slope[r][2] = at.load(dy[r].pixel(j + 1));
      hwy::Prefetch(dy[r].pixel(j + 1 + 2 * width) + at.first);
    }
    add(j);
  }
  slope[0][2] = slope[1][2] = SetAll(0);
  add(width - 1);
#pragma GCC unroll 9
  for (int k = 0; k < 9; ++k) at.store(total[k / 3][k % 3], sums + k * tap_step);
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
