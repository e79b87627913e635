// What all convolution kernels share: strips and the register tiles.
#if defined(LINNET_KERNELS_CONVOLUTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_CONVOLUTION_INL_H_
#undef LINNET_KERNELS_CONVOLUTION_INL_H_
#else
#define LINNET_KERNELS_CONVOLUTION_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include "base/thread_pool.h"
#include "engine/kernels/conv/convolution_layout.h"
#include "engine/kernels/gemm/gemm_epilogue-inl.h"
#include "engine/kernels/gemm/gemm_tile-inl.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::convolution {
using tile::d;
using tile::kLanes;
using tile::kRows;
using tile::kRunTiles;
using tile::kWidth;
using tile::RunFinish;
using tile::Runs;
using tile::V;

constexpr int64_t kPixelsAhead = 12;  // pixels that are fetched before they are read: the latency of memory

using convolution_layout::Window;

// `channels` channels of rows of pixels of one image, which is `height` x `width` pixels of `image_pitch` elements.
template <class T> struct StripSource {
  const T* image;  // at the first of the channels
  int64_t height, width, image_pitch, channels;
};

// Copies a window of the image, with zeros outside of it. copy(source, to, n): n pixels, `pitch` floats apart in the
// strip.
template <class T, class Copy> HWY_INLINE void CopyStripBy(
    const StripSource<T>& from, const Window& window, int64_t pitch, float* out, const Copy& copy) {
  const auto& [row, rows, column, columns] = window;
  const int64_t begin = std::clamp<int64_t>(-column, 0, columns);
  const int64_t end = std::max(begin, std::min(columns, from.width - column));
  for (int64_t i = row; i < row + rows; ++i, out += columns * pitch) {
    if (i < 0 || i >= from.height || begin == end) {
      std::fill_n(out, columns * pitch, 0.0f);
      continue;
    }
    std::fill_n(out, begin * pitch, 0.0f);
    std::fill_n(out + end * pitch, (columns - end) * pitch, 0.0f);
    copy(from.image + (i * from.width + column + begin) * from.image_pitch, out + begin * pitch, end - begin);
  }
}

HWY_INLINE void CopyStrip(const StripSource<float>& from, const Window& window, int64_t pitch, float* out) {
  CopyStripBy(from, window, pitch, out, [&](const float* source, float* to, int64_t n) LINNET_LAMBDA {
    if (pitch == from.channels && from.channels == from.image_pitch)
      return void(std::memcpy(to, source, static_cast<size_t>(n * pitch) * sizeof(float)));
    // A part of the channels: hardware does not prefetch the next pixel's part.
    for (int64_t j = 0; j < n; ++j, source += from.image_pitch, to += pitch)
      ForRow(from.channels, [=](const auto& at) LINNET_LAMBDA {
        hwy::Prefetch(source + kPixelsAhead * from.image_pitch + at.first);
        at.store(at.load(source), to);
      });
  });
}

// Pixels of strips, row by row: the order of the weight gradient's sum. Distances in floats.
struct Pixels {
  int64_t rows, columns;              // result pixels
  int64_t x_step, x_row;              // from pixel to pixel, and from the end of a row to the next
  int64_t slope_step, slope_row = 0;  // of dy
  int64_t strips = 1;
  int64_t x_strip = 0, slope_strip = 0;  // from the end of a strip to the next
};

// c[M, kVectors * kLanes] (+)= sum over pixels of dy[pixel, i] * x[pixel, :].
template <class P, int M, int kVectors> HWY_NOINLINE void PixelTile(const Pixels& pixels, const float* HWY_RESTRICT dy,
    const float* HWY_RESTRICT x, float* c, int64_t ldc, bool accumulate) {
  V r[M][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; ++h) r[i][h] = hn::Zero(d);
  const int64_t x_step = pixels.x_step, slope_step = pixels.slope_step;
  for (int64_t strip = 0; strip < pixels.strips; ++strip, x += pixels.x_strip, dy += pixels.slope_strip)
    for (int64_t row = 0; row < pixels.rows; ++row, x += pixels.x_row, dy += pixels.slope_row)
      for (int64_t j = 0; j < pixels.columns; ++j, x += x_step, dy += slope_step) tile::Step<P, M, 1>(dy, x, r);
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; ++h) {
      float* to = c + i * ldc + h * kLanes;
      hn::StoreU(accumulate ? hn::Add(r[i][h], hn::LoadU(d, to)) : r[i][h], d, to);
    }
}

using PixelTileFunction = void (*)(const Pixels&, const float*, const float*, float*, int64_t, bool);

template <class P, int kVectors, int... I>
constexpr std::array<PixelTileFunction, kRows + 1> pixel_tiles(std::integer_sequence<int, I...>) {
  return {nullptr, PixelTile<P, I + 1, kVectors>...};
}
// Indexed by the number of rows, 1 to kRows.
template <class P, int kVectors>
constexpr auto kPixelTiles = pixel_tiles<P, kVectors>(std::make_integer_sequence<int, kRows>());

// Calls compute(c, ldc, accumulate) for a tile of `rows` x `columns` results at c, and keeps only that many columns.
template <class Compute> HWY_INLINE void ForColumns(
    int rows, int64_t columns, bool whole, float* c, int64_t ldc, bool accumulate, const Compute& compute) {
  if (whole) return compute(c, ldc, accumulate);
  HWY_ALIGN float edge[kRows * kWidth];
  compute(edge, int64_t{kWidth}, false);
  for (int i = 0; i < rows; ++i, c += ldc)
    ForRow(columns, [&](const auto& at) LINNET_LAMBDA {
      const Floats x = at.load(edge + i * kWidth);
      at.store(accumulate ? hn::Add(at.load(c), x) : x, c);
    });
}

// The epilogue of a vector of results of filters from number `filter` on, except functions beyond ReLU, which
// tile::ActivateRows() computes from stored results. residual: where theirs begins.
template <class At> HWY_INLINE Floats WithEpilogue(
    const ConvolutionEpilogue& epilogue, Floats x, const At& at, int64_t filter, const float* residual) {
  if (epilogue.scale) x = hn::Mul(x, at.load(epilogue.scale + filter));
  if (epilogue.bias) x = hn::Add(x, at.load(epilogue.bias + filter));
  if (residual) x = hn::Add(x, at.load(residual));
  // As ops/pointwise: NaN is neither above zero nor replaced.
  return epilogue.activation == GemmActivation::kRelu ? Relu(x) : x;
}

// Applies the epilogue to `pixels` pixels of `width` filters from number `filter` on. c: the first of them, `first`
// elements into the result; ldc: between pixels.
HWY_INLINE void ApplyEpilogue(const ConvolutionEpilogue& epilogue, int64_t filter, int64_t width, int64_t pixels,
    float* c, int64_t ldc, int64_t first) {
  const bool side_by_side = ldc == width;  // then pixels of few filters fill vectors, where each is treated alike
  if (side_by_side && !epilogue.scale && !epilogue.bias) width *= pixels, ldc = width, pixels = 1;
  const float* residual = epilogue.residual ? epilogue.residual + first : nullptr;
  const bool other = epilogue.activation > GemmActivation::kRelu;
  if (!other || epilogue.scale || epilogue.bias || residual)
    for (int64_t i = 0; i < pixels; ++i) {
      float* row = c + i * ldc;
      ForRow(width, [&](const auto& at) LINNET_LAMBDA {
        at.store(WithEpilogue(epilogue, at.load(row), at, filter, residual ? residual + i * ldc : nullptr), row);
      });
    }
  if (!other) return;
  if (side_by_side) width *= pixels, pixels = 1;
  tile::ActivateRows(epilogue.activation, pixels, width, c, ldc);
}

// The part of an epilogue computed before a result is stored; the rest, a residual and what follows it and functions
// beyond ReLU, is left to ApplyEpilogue().
struct EpilogueInTwo {
  explicit EpilogueInTwo(const ConvolutionEpilogue& all) : first(all) {
    std::swap(first.residual, last.residual);
    if (last.residual || first.activation > GemmActivation::kRelu) std::swap(first.activation, last.activation);
  }
  ConvolutionEpilogue first, last;
};

// Adds all parts' sums of a weight gradient in order. `turned`: filters are lanes, so sums are [R, S, C / groups, O]. P
// separates files compiled with other extensions.
template <class P> void AddPartials(const WeightCall& call, bool turned, ThreadPool& pool) {
  const convolution_layout::WeightProblem& p = call.problem;
  float* const total = turned ? call.sums : call.dweight;
  if (p.partials > 1 || !turned)
    for_ranges(pool, p.elements, p.partials, [&](int64_t begin, int64_t end) {
      AddRows(p.partials, p.elements, end - begin, call.sums + begin, false, total + begin);
    });
  if (!turned) return;
  const int64_t filters = p.s.filters, length = p.elements / filters;
  for_each_index(pool, filters, length, [&](int64_t o) {
    for (int64_t i = 0; i < length; ++i) call.dweight[o * length + i] = total[i * filters + o];
  });
}
}  // namespace linnet::HWY_NAMESPACE::convolution
HWY_AFTER_NAMESPACE();

#endif
