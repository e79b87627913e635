// The gradient of filters of 3 x 3 by Winograd's minimal filtering (winograd-inl.h): for each spot of the 4 x 4 the
// product of transformed dy and transformed sources, summed over tiles, and at the end one transformation back.
//
// A policy P (gemm_pack-inl.h) says what is multiplied. In bf16 sources and dy are transformed in fp32 and then
// rounded; a packed element is a pair of neighboring tiles, the second of them zero after the last tile.
//
// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_WINOGRAD_WEIGHT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_WINOGRAD_WEIGHT_INL_H_
#undef LINNET_KERNELS_WINOGRAD_WEIGHT_INL_H_
#else
#define LINNET_KERNELS_WINOGRAD_WEIGHT_INL_H_
#endif

#include <algorithm>

#include "base/thread_pool.h"
#include "kernels/conv/convolution_calls.h"
#include "kernels/conv/winograd-inl.h"
#include "kernels/gemm/gemm_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::convolution {

using namespace convolution_layout;

// Filters [begin, end) of a partial sum. T: float or Bfloat16, of x and dy.
template <class P, class T>
class WinogradWeightTask {
 public:
  HWY_INLINE WinogradWeightTask(const WinogradWeightCall& call, int64_t partial, int64_t begin, int64_t end,
                                float* scratch)
      : call_(call),
        p_(call.problem),
        partial_(partial),
        begin_(begin),
        end_(end),
        sources_(scratch),
        slopes_(sources_ + kSpots * p_.task_steps * p_.source_pitch()),
        zeros_(slopes_ + kSpots * p_.task_steps * p_.slope_pitch()) {}

  HWY_INLINE void run() const {
    std::fill_n(zeros_, p_.source_pitch() + p_.slope_pitch(), 0.0f);
    const Deal blocks{p_.blocks, p_.partials}, tiles{p_.tiles(), p_.blocks};
    TilePlace place{tiles.begin(blocks.begin(partial_)), p_.tile_rows(), p_.tile_columns()};
    for (int64_t block = blocks.begin(partial_); block < blocks.begin(partial_ + 1); ++block) {
      const int64_t count = tiles.size(block), steps = ceil_div(count, int64_t{P::kPair});
      for (int64_t step = 0; step < steps; ++step) {
        if constexpr (P::kPair == 1)
          transform_tile(place, step), place.advance();
        else
          transform_pair(place, step, 2 * step + 1 < count);
      }
      multiply(steps, block != blocks.begin(partial_));
    }
  }

 private:
  HWY_INLINE const T* zeros() const { return reinterpret_cast<const T*>(zeros_); }
  HWY_INLINE TileSource<T> image(const TilePlace& place) const {
    const ConvolutionSizes& s = p_.s;
    return {static_cast<const T*>(call_.x) + place.image * s.height * s.width * s.channels, s.height, s.width,
            s.channels};
  }

  // The 2 x 2 pixels of dy, of this task's filters.
  HWY_INLINE void slope_pixels(const TilePlace& place, const T** pixels) const {
    const ConvolutionSizes& s = p_.s;
    for (int k = 0; k < 4; ++k) {
      const int64_t y = place.row + k / 2, x = place.column + k % 2;
      const bool inside = y < s.out_height && x < s.out_width;
      pixels[k] = inside ? static_cast<const T*>(call_.dy) +
                               ((place.image * s.out_height + y) * s.out_width + x) * s.filters + begin_
                         : zeros();
    }
  }

  HWY_INLINE float* sources(int64_t step) const { return sources_ + step * p_.source_pitch(); }
  HWY_INLINE float* slopes(int64_t step) const { return slopes_ + step * p_.slope_pitch(); }
  // Floats from spot to spot.
  HWY_INLINE int64_t source_spot() const { return p_.task_steps * p_.source_pitch(); }
  HWY_INLINE int64_t slope_spot() const { return p_.task_steps * p_.slope_pitch(); }

  HWY_INLINE void transform_tile(const TilePlace& place, int64_t step) const {
    const int64_t padding = p_.s.padding, channels = p_.s.channels, spot = source_spot(), of_dy = slope_spot();
    float *const source = sources(step), *const slope = slopes(step);
    WithPixels(image(place), place.row - padding, place.column - padding, zeros(),
               [&](const auto& pixel) LINNET_LAMBDA {
                 ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
                   TransformPixels(at, pixel, [&](int k, V x) LINNET_LAMBDA { at.store(x, source + k * spot); });
                 });
               });
    const T* pixels[4];
    slope_pixels(place, pixels);
    ForRow(end_ - begin_, [&](const auto& at) LINNET_LAMBDA {
      TransformSlopes(at, pixels, [&](int k, V x) LINNET_LAMBDA { at.store(x, slope + k * of_dy); });
    });
  }

  // Of the tile at `place`, which then is the one after the pair, and of the next one if there is one.
  HWY_INLINE void transform_pair(TilePlace& place, int64_t step, bool has_second) const {
    const T *pixels[2][kSpots], *of_dy[2][4];
    std::fill_n(pixels[1], kSpots, zeros());
    std::fill_n(of_dy[1], 4, zeros());
    for (int i = 0; i < (has_second ? 2 : 1); ++i, place.advance()) {
      TilePixels(image(place), place.row - p_.s.padding, place.column - p_.s.padding, zeros(), pixels[i]);
      slope_pixels(place, of_dy[i]);
    }
    const auto pack = [&](const auto& at, const auto& transform, float* to, int64_t spot) LINNET_LAMBDA {
      V first[kSpots];
      transform(0, [&](int k, V x) LINNET_LAMBDA { first[k] = x; });
      transform(1, [&](int k, V x) LINNET_LAMBDA { at.store(P::Pairs(first[k], x), to + k * spot); });
    };
    ForRow(p_.s.channels, [&](const auto& at) LINNET_LAMBDA {
      const auto transform = [&](int i, const auto& store) LINNET_LAMBDA {
        TransformPixels(
            at, [&](int k) LINNET_LAMBDA { return pixels[i][k]; }, store);
      };
      pack(at, transform, sources(step), source_spot());
    });
    ForRow(end_ - begin_, [&](const auto& at) LINNET_LAMBDA {
      const auto transform = [&](int i, const auto& store) LINNET_LAMBDA { TransformSlopes(at, of_dy[i], store); };
      pack(at, transform, slopes(step), slope_spot());
    });
  }

  HWY_INLINE void multiply(int64_t steps, bool accumulate) const {
    const int64_t channels = p_.s.channels, filters = p_.s.filters;
    const Pixels pixels{1, steps, p_.source_pitch(), 0, p_.slope_pitch()};
    const Deal deal{end_ - begin_, ceil_div(end_ - begin_, kRows)};
    for (int k = 0; k < kSpots; ++k) {
      const float *source = sources_ + k * source_spot(), *slope = slopes_ + k * slope_spot();
      float* sums = call_.sums + ((partial_ * kSpots + k) * filters + begin_) * channels;
      for (int64_t c = 0; c < channels; c += kWidth) {
        const auto& tile = channels - c >= kWidth ? kPixelTiles<P, 2> : kPixelTiles<P, 1>;
        for (int64_t part = 0; part < deal.parts(); ++part)
          tile[static_cast<size_t>(deal.size(part))](pixels, slope + deal.begin(part), source + c,
                                                     sums + deal.begin(part) * channels + c, channels, accumulate);
      }
    }
  }

  const WinogradWeightCall& call_;
  const WinogradWeightProblem& p_;
  const int64_t partial_, begin_, end_;
  float *const sources_, *const slopes_, *const zeros_;  // [kSpots][task_steps][pitch] both
};

// out[3] = G^T [u0, u1, u2, u3]
HWY_INLINE void TransformBack(V u0, V u1, V u2, V u3, V* out) {
  const V half = hn::Set(d, 0.5f), sum = hn::Mul(half, hn::Add(u1, u2));
  out[0] = hn::Add(u0, sum);
  out[1] = hn::Mul(half, hn::Sub(u1, u2));
  out[2] = hn::Add(sum, u3);
}

// Filter `o` from the partial sums.
HWY_INLINE void FinishFilter(const WinogradWeightCall& call, int64_t o) {
  const WinogradWeightProblem& p = call.problem;
  const int64_t channels = p.s.channels, spot = p.s.filters * channels;
  ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
    V columns[4][3];
    for (int j = 0; j < 4; ++j) {
      const auto u = [&](int i) LINNET_LAMBDA {
        const float* sums = call.sums + (4 * i + j) * spot + o * channels;
        V sum = at.load(sums);
        for (int64_t partial = 1; partial < p.partials; ++partial)
          sum = hn::Add(sum, at.load(sums + partial * kSpots * spot));
        return sum;
      };
      TransformBack(u(0), u(1), u(2), u(3), columns[j]);
    }
    for (int r = 0; r < 3; ++r) {
      V row[3];
      TransformBack(columns[0][r], columns[1][r], columns[2][r], columns[3][r], row);
      for (int s = 0; s < 3; ++s) at.store(row[s], call.dweight + (o * 9 + 3 * r + s) * channels);
    }
  });
}

template <class P, class T>
void run_winograd_weights(const WinogradWeightCall& call, ThreadPool& pool) {
  const WinogradWeightProblem& p = call.problem;
  // The sources are transformed once for each part of the filters.
  const int64_t groups = p.s.filters / WinogradProblem::kMostLanes;
  const int64_t parts = std::clamp<int64_t>(ceil_div(2 * pool.size(), p.partials), 1, groups);
  const Deal deal{groups, parts};
  pool.run(p.partials * parts, [&](int64_t task, int worker) {
    const int64_t part = task % parts;
    WinogradWeightTask<P, T>(call, task / parts, deal.begin(part) * WinogradProblem::kMostLanes,
                             deal.begin(part + 1) * WinogradProblem::kMostLanes,
                             call.scratch + worker * p.scratch_floats())
        .run();
  });
  pool.run(p.s.filters, [&](int64_t o, int) { FinishFilter(call, o); });
}

}  // namespace linnet::HWY_NAMESPACE::convolution
HWY_AFTER_NAMESPACE();

#endif
