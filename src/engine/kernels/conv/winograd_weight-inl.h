// The gradient of 3 x 3 filters: for each spot of a tile the product of transformed dy and transformed sources, summed
// over tiles, then one inverse transformation. In bf16 sources and dy are transformed in fp32 and then rounded; a
// packed element is a pair of neighboring tiles, the second zero after the last tile.
#include <algorithm>
#include "base/thread_pool.h"
#include "engine/kernels/conv/winograd_transforms-inl.h"
#include "engine/kernels/gemm/gemm_pack-inl.h"
#include "engine/kernels/gemm/gemm_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::convolution {
// Filters [begin, end) of a partial sum. T: float or Bfloat16, of x and dy.
template <class F, class P, class T> class WinogradWeightTask {
 public:
  HWY_INLINE WinogradWeightTask(
      const WinogradWeightCall& call, int64_t partial, int64_t begin, int64_t end, float* scratch)
      : call_(call), p_(call.problem), partial_(partial), begin_(begin), end_(end), sources_(scratch),
        slopes_(sources_ + F::kSpots * p_.task_steps * p_.source_pitch()),
        zeros_(slopes_ + F::kSpots * p_.task_steps * p_.slope_pitch()) {}

  HWY_INLINE void run() const {
    std::fill_n(zeros_, p_.source_pitch() + p_.slope_pitch(), 0.0f);
    const Deal blocks{p_.blocks, p_.partials}, tiles{p_.tiles(), p_.blocks};
    TilePlace<F> place{tiles.begin(blocks.begin(partial_)), p_.tile_rows(), p_.tile_columns()};
    TilePlace<F> ahead = place;
    if constexpr (F::kResults == 4)
      for (int64_t t = 0; t < kTilesAhead; ++t) ahead.advance();
    for (int64_t block = blocks.begin(partial_); block < blocks.begin(partial_ + 1); ++block) {
      const int64_t count = tiles.size(block), steps = ceil_div(count, int64_t{P::kPair});
      for (int64_t step = 0; step < steps; ++step) {
        if constexpr (F::kResults == 4) fetch(ahead), ahead.advance();
        if constexpr (P::kPair == 1) transform_tile(place, step), place.advance();
        else transform_pair(place, step, 2 * step + 1 < count);
      }
      multiply(steps, block != blocks.begin(partial_));
    }
  }

 private:
  HWY_INLINE const T* zeros() const { return reinterpret_cast<const T*>(zeros_); }
  HWY_INLINE TileSource<T> image(const TilePlace<F>& place) const {
    const ConvolutionSizes& s = p_.s;
    return {call_.x.as<T>() + place.image * s.height * s.width * s.channels, s.height, s.width, s.channels};
  }

  // dy of a tile's results, for this task's filters.
  HWY_INLINE TileSource<T> slope_image(const TilePlace<F>& place) const {
    const ConvolutionSizes& s = p_.s;
    return {call_.dy.as<T>() + place.image * s.out_height * s.out_width * s.filters + begin_, s.out_height, s.out_width,
        s.filters};
  }

  HWY_INLINE float* sources(int64_t step) const { return sources_ + step * p_.source_pitch(); }
  HWY_INLINE float* slopes(int64_t step) const { return slopes_ + step * p_.slope_pitch(); }
  HWY_INLINE int64_t source_spot() const { return p_.task_steps * p_.source_pitch(); }  // floats between spots
  HWY_INLINE int64_t slope_spot() const { return p_.task_steps * p_.slope_pitch(); }

  // Prefetches a tile, of whose source its neighbors have two rows and columns.
  HWY_INLINE void fetch(const TilePlace<F>& ahead) const {
    const int64_t first = 2 - p_.s.padding;
    FetchPixels<F::kResults>(image(ahead), ahead.row + first, ahead.column + first);
    FetchPixels<F::kResults>(slope_image(ahead), ahead.row, ahead.column);
  }

  HWY_INLINE void transform_tile(const TilePlace<F>& place, int64_t step) const {
    const int64_t padding = p_.s.padding, spot = source_spot(), of_dy = slope_spot();
    float *const source = sources(step), *const slope = slopes(step);
    WithPixels<F::kSide>(
        image(place), place.row - padding, place.column - padding, zeros(), [&](const auto& pixel) LINNET_LAMBDA {
          ForRow(p_.s.channels, [&](const auto& at) LINNET_LAMBDA {
            TransformPixels<F>(
                at, pixel, [&](int i, int j, V x) LINNET_LAMBDA { at.store(x, source + (i * F::kSide + j) * spot); });
          });
        });
    WithPixels<F::kResults>(slope_image(place), place.row, place.column, zeros(), [&](const auto& pixel) LINNET_LAMBDA {
      ForRow(end_ - begin_, [&](const auto& at) LINNET_LAMBDA {
        TransformSlopes<F>(
            at, pixel, [&](int i, int j, V x) LINNET_LAMBDA { at.store(x, slope + (i * F::kSide + j) * of_dy); });
      });
    });
  }

  // Transforms the tile at `place`, which moves behind the pair, and the next one if there is one.
  HWY_INLINE void transform_pair(TilePlace<F>& place, int64_t step, bool has_second) const {
    constexpr int kSlopes = F::kResults * F::kResults;
    const T *pixels[2][F::kSpots], *of_dy[2][kSlopes];
    std::fill_n(pixels[1], F::kSpots, zeros());
    std::fill_n(of_dy[1], kSlopes, zeros());
    for (int i = 0; i < (has_second ? 2 : 1); ++i, place.advance()) {
      TilePixels<F::kSide>(image(place), place.row - p_.s.padding, place.column - p_.s.padding, zeros(), pixels[i]);
      TilePixels<F::kResults>(slope_image(place), place.row, place.column, zeros(), of_dy[i]);
    }
    const auto pack = [&](const auto& at, const auto& transform, float* to, int64_t spot) LINNET_LAMBDA {
      V first[F::kSpots];
      transform(0, [&](int i, int j, V x) LINNET_LAMBDA { first[i * F::kSide + j] = x; });
      transform(1, [&](int i, int j, V x) LINNET_LAMBDA {
        const int k = i * F::kSide + j;
        at.store(P::Pairs(first[k], x), to + k * spot);
      });
    };
    ForRow(p_.s.channels, [&](const auto& at) LINNET_LAMBDA {
      const auto transform = [&](int tile, const auto& store) LINNET_LAMBDA {
        TransformPixels<F>(
            at, [&](int i, int j) LINNET_LAMBDA { return pixels[tile][i * F::kSide + j]; }, store);
      };
      pack(at, transform, sources(step), source_spot());
    });
    ForRow(end_ - begin_, [&](const auto& at) LINNET_LAMBDA {
      const auto transform = [&](int tile, const auto& store) LINNET_LAMBDA {
        TransformSlopes<F>(
            at, [&](int i, int j) LINNET_LAMBDA { return of_dy[tile][i * F::kResults + j]; }, store);
      };
      pack(at, transform, slopes(step), slope_spot());
    });
  }

  HWY_INLINE void multiply(int64_t steps, bool accumulate) const {
    const int64_t channels = p_.s.channels, filters = p_.s.filters;
    const Pixels pixels{1, steps, p_.source_pitch(), 0, p_.slope_pitch()};
    const Deal deal{end_ - begin_, ceil_div(end_ - begin_, kRows)};
    // A tile of one vector leaves registers for a few more rows.
    constexpr int kMostRows = kLanes >= 16 && F::kResults == 4 ? 16 : 0;
    const bool one_tile = channels == kLanes && end_ - begin_ == kMostRows;
    for (int k = 0; k < F::kSpots; ++k) {
      const float *source = sources_ + k * source_spot(), *slope = slopes_ + k * slope_spot();
      float* sums = call_.sums + ((partial_ * F::kSpots + k) * filters + begin_) * channels;
      if constexpr (kMostRows > 0) {
        if (one_tile) {
          PixelTile<P, kMostRows, 1>(pixels, slope, source, sums, channels, accumulate);
          continue;
        }
      }
      for (int64_t c = 0; c < channels; c += kWidth) {
        const auto& tile = channels - c >= kWidth ? kPixelTiles<P, 2> : kPixelTiles<P, 1>;
        for (int64_t part = 0; part < deal.parts(); ++part)
          tile[deal.size(part)](pixels, slope + deal.begin(part), source + c, sums + deal.begin(part) * channels + c,
              channels, accumulate);
      }
    }
  }

  const WinogradWeightCall& call_;
  const WinogradWeightProblem& p_;
  const int64_t partial_, begin_, end_;
  float *const sources_, *const slopes_, *const zeros_;  // [kSpots][task_steps][pitch] both
};

template <class F> HWY_INLINE void FinishFilter(const WinogradWeightCall& call, int64_t o) {
  const WinogradWeightProblem& p = call.problem;
  const int64_t channels = p.s.channels, spot = p.s.filters * channels;
  ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
    const auto load = [&](int i, int j) LINNET_LAMBDA {
      const float* sums = call.sums + (i * F::kSide + j) * spot + o * channels;
      V sum = at.load(sums);
      for (int64_t partial = 1; partial < p.partials; ++partial)
        sum = hn::Add(sum, at.load(sums + partial * F::kSpots * spot));
      return sum;
    };
    const auto store = [&](int i, int j, V x)
                           LINNET_LAMBDA { at.store(x, call.dweight + (o * 9 + 3 * i + j) * channels); };
    OnBothAxes<F::kSide, 3>([](const V* u, V* out) LINNET_LAMBDA { F::FilterSlope(u, out); }, load, store);
  });
}

template <class F, class P, class T> void run_winograd_weights(const WinogradWeightCall& call, ThreadPool& pool) {
  const WinogradWeightProblem& p = call.problem;
  // The sources are transformed once for each part of the filters.
  const int64_t groups = p.s.filters / WinogradProblem::kMostLanes;
  const int64_t parts = std::clamp<int64_t>(ceil_div(2 * pool.size(), p.partials), 1, groups);
  const Deal deal{groups, parts};
  pool.run(p.partials * parts, [&](int64_t task, int worker) {
    const int64_t part = task % parts;
    WinogradWeightTask<F, P, T>(call, task / parts, deal.begin(part) * WinogradProblem::kMostLanes,
        deal.begin(part + 1) * WinogradProblem::kMostLanes, call.scratch + worker * p.scratch_floats())
        .run();
  });
  pool.run(p.s.filters, [&](int64_t o, int) { FinishFilter<F>(call, o); });
}
}  // namespace linnet::HWY_NAMESPACE::convolution
HWY_AFTER_NAMESPACE();
