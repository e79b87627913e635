// 3 x 3 filters of stride 1: the forward pass, the input gradient, and the filters' gradient. The policy P
// (gemm_tile-inl.h) gives the type of products. In bf16 sources and filters are transformed in fp32 and then rounded; a
// packed element is a pair of neighboring channels.
#include <algorithm>
#include <type_traits>
#include "base/thread_pool.h"
#include "engine/kernels/conv/winograd_transforms-inl.h"
#include "engine/kernels/gemm/gemm_blocking.h"
#include "engine/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::convolution {
using namespace convolution_layout;

constexpr int64_t kFiltersAhead = 4;  // filters that are fetched before they are read: the latency of memory
constexpr int64_t kPackedChannels = WinogradProblem::kPackedChannels;

// Results of a panel: kWidth, or kLanes in the last one.
HWY_INLINE int64_t PanelWidth(const WinogradProblem& p, int64_t panel) {
  return std::min<int64_t>(kWidth, p.columns() - panel * kWidth);
}

// If a pixel's sum has 16 steps, a vector of results has all its filters in registers (ShortProducts).
constexpr int64_t kShortDepth = 16;
template <class F, class P> HWY_INLINE bool IsShort(const WinogradProblem& p, int64_t panel) {
  return F::kResults == 4 && kLanes >= 16 && P::kPair == 1 && p.steps() == kShortDepth &&
         PanelWidth(p, panel) == kLanes;
}

// The offset of a spot's packed filters in their panel. Those of a short sum have no gap between them.
template <class F, class P> HWY_INLINE int64_t SpotFloats(const WinogradProblem& p, int64_t panel) {
  return p.steps() * (IsShort<F, P>(p, panel) ? kLanes : kWidth);
}

// Packs [steps][kWidth] of a spot densely as [steps][kLanes].
HWY_INLINE void CloseGaps(int64_t steps, float* out) {
  for (int64_t k = 1; k < steps; ++k) hn::Store(hn::Load(d, out + k * kWidth), d, out + k * kLanes);
}

// Panel `panel` of the transformed filters: [kSpots][steps][kWidth].
template <class F, class P> void PackForward(const WinogradPackCall& call, int64_t panel, float* scratch) {
  const WinogradProblem& p = call.problem;
  const int64_t depth = p.depth(), first = panel * kWidth, width = PanelWidth(p, panel);
  const int64_t spot = SpotFloats<F, P>(p, panel);
  float* out = call.packed + panel * F::kSpots * p.steps() * kWidth;
  for (int64_t c = 0; c < depth; c += kPackedChannels) {
    const int64_t channels = std::min(kPackedChannels, depth - c);
    for (int64_t o = 0; o < width; ++o) {
      const float* weight = call.weight + (first + o) * 9 * depth + c;
      ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
        TransformFilter<F>([&](int i, int j) LINNET_LAMBDA { return at.load(weight + (3 * i + j) * depth); },
            [&](int i, int j, V u)
                LINNET_LAMBDA { at.store(u, scratch + ((i * F::kSide + j) * kWidth + o) * kPackedChannels); });
      });
    }
    for (int k = 0; k < F::kSpots; ++k) {
      float* const to = out + k * spot + c / P::kPair * kWidth;
      tile::PackPanelTransposed<P>(scratch + k * kWidth * kPackedChannels, kPackedChannels, channels, width, to);
      if (IsShort<F, P>(p, panel)) CloseGaps(p.steps(), to);
    }
  }
}

// The input gradient is a convolution of dy with the filters rotated by 180 degrees, filters and channels exchanged.
template <class F, class P> void PackGradient(const WinogradPackCall& call, int64_t panel, float* scratch) {
  const WinogradProblem& p = call.problem;
  const int64_t depth = p.depth(), channels = p.columns(), width = PanelWidth(p, panel);
  const int64_t spot = SpotFloats<F, P>(p, panel);
  float* out = call.packed + panel * F::kSpots * p.steps() * kWidth;
  for (int64_t o = 0; o < depth; o += kPackedChannels) {
    const int64_t filters = std::min(kPackedChannels, depth - o);
    for (int64_t i = 0; i < filters; ++i)
      for (int64_t c = 0; c < width; c += kLanes) {
        const float* weight = call.weight + (o + i) * 9 * channels + panel * kWidth + c;
        for (int tap = 0; tap < 9; ++tap) hwy::Prefetch(weight + (kFiltersAhead * 9 + tap) * channels);
        float* const to = scratch + i * kWidth + c;
        TransformFilter<F>([&](int r, int q)
                               LINNET_LAMBDA { return hn::LoadU(d, weight + (8 - 3 * r - q) * channels); },
            [&](int r, int q, V u)
                LINNET_LAMBDA { hn::Store(u, d, to + (r * F::kSide + q) * kPackedChannels * kWidth); });
      }
    for (int k = 0; k < F::kSpots; ++k) {
      float* const to = out + k * spot + o / P::kPair * kWidth;
      tile::PackPanel<P>(scratch + k * kPackedChannels * kWidth, kWidth, filters, width, to);
      if (IsShort<F, P>(p, panel)) CloseGaps(p.steps(), to);
    }
  }
}

// products[t, :] = sum over c of sources[t, c] * filters[c, :] of kTiles tiles. Reads everything before writing.
template <int kTiles> HWY_INLINE void ShortRows(const V* filters, const float* sources, float* products) {
  V sums[kTiles];
#pragma GCC unroll 8
  for (int t = 0; t < kTiles; ++t) sums[t] = hn::Mul(hn::Set(d, sources[t * kShortDepth]), filters[0]);
#pragma GCC unroll 16
  for (int c = 1; c < kShortDepth; ++c)
#pragma GCC unroll 8
    for (int t = 0; t < kTiles; ++t)
      sums[t] = hn::MulAdd(hn::Set(d, sources[t * kShortDepth + c]), filters[c], sums[t]);
#pragma GCC unroll 8
  for (int t = 0; t < kTiles; ++t) hn::Store(sums[t], d, products + t * kLanes);
}

// Products of a spot, whose filters stay in registers. Tiles are kShortDepth and kLanes floats apart; products may
// overwrite their sources.
template <class P>
HWY_NOINLINE void ShortProducts(int64_t tiles, const float* packed, const float* sources, float* products) {
  V filters[kShortDepth];
#pragma GCC unroll 16
  for (int c = 0; c < kShortDepth; ++c) filters[c] = hn::Load(d, packed + c * kLanes);
  int64_t t = 0;
  const auto visit = [&]<int kTiles>() LINNET_LAMBDA {
    for (; t + kTiles <= tiles; t += kTiles)
      ShortRows<kTiles>(filters, sources + t * kShortDepth, products + t * kLanes);
  };
  visit.template operator()<8>();
  visit.template operator()<4>();
  visit.template operator()<1>();
}

// Tiles [tile, tile + tiles) and panels [panel, panel_end) of their results. Source, Result: float or Bfloat16.
template <class F, class P, class Source, class Result> class WinogradTask {
 public:
  HWY_INLINE WinogradTask(const WinogradCall& call, int64_t first, int64_t tiles, float* scratch)
      : call_(call), p_(call.problem), first_(first), tiles_(tiles), sources_(scratch),
        products_(in_place() ? sources_ : sources_ + F::kSpots * p_.task_tiles() * p_.pitch()),
        zeros_(products_ + F::kSpots * p_.task_tiles() * kWidth), has_epilogue_(call.epilogue.any()) {}

  HWY_INLINE void run(int64_t panel, int64_t panel_end) const {
    std::fill_n(zeros_, p_.pitch(), 0.0f);
    TilePlace<F> place = first_place(), ahead = place;
    if constexpr (F::kResults == 4)
      for (int64_t t = 0; t < kTilesAhead; ++t) ahead.advance();
    for (int64_t t = 0; t < tiles_; ++t, place.advance()) {
      if constexpr (F::kResults == 4) fetch(place, ahead), ahead.advance();
      transform_source(place, t);
    }
    for (; panel < panel_end; ++panel) {
      multiply(panel);
      place = first_place();
      for (int64_t t = 0; t < tiles_; ++t, place.advance()) transform_result(place, t, panel);
    }
  }

 private:
  // The stored type: pairs of neighboring channels are rows of bf16.
  using Packed = std::conditional_t<P::kPair == 2, Bfloat16, float>;

  // Whether products overwrite their sources, to use less cache.
  HWY_INLINE bool in_place() const { return IsShort<F, P>(p_, 0) && p_.columns() == kLanes; }
  HWY_INLINE TilePlace<F> first_place() const { return {first_, p_.tile_rows(), p_.tile_columns()}; }

  HWY_INLINE TileSource<Source> source_image(int64_t image) const {
    const int64_t height = p_.source_height(), width = p_.source_width(), depth = p_.depth();
    return {call_.source.as<Source>() + image * height * width * depth, height, width, depth};
  }
  // Prefetches a later tile's source, of which its neighbors have two rows and columns, and the results' memory.
  HWY_INLINE void fetch(const TilePlace<F>& place, const TilePlace<F>& ahead) const {
    FetchPixels<F::kResults>(source_image(ahead.image), ahead.row + p_.origin() + 2, ahead.column + p_.origin() + 2);
    const int64_t height = p_.result_height(), width = p_.result_width(), columns = p_.columns();
    const TileSource<Result> result{
        call_.result.as<Result>() + place.image * height * width * columns, height, width, columns};
    FetchPixels<F::kResults>(result, place.row, place.column);
  }

  HWY_INLINE void transform_source(const TilePlace<F>& place, int64_t t) const {
    const int64_t depth = p_.depth();
    const TileSource<Source> image = source_image(place.image);
    auto* const out = reinterpret_cast<Packed*>(sources_ + t * p_.pitch());
    const int64_t spot = p_.task_tiles() * p_.pitch() * P::kPair;
    WithPixels<F::kSide>(image, place.row + p_.origin(), place.column + p_.origin(),
        reinterpret_cast<const Source*>(zeros_), [&](const auto& pixel) LINNET_LAMBDA {
          ForRow(depth, [&](const auto& at) LINNET_LAMBDA {
            TransformPixels<F>(
                at, pixel, [&](int i, int j, V x) LINNET_LAMBDA { at.store(x, out + (i * F::kSide + j) * spot); });
          });
        });
  }

  HWY_INLINE void multiply(int64_t panel) const {
    const int64_t steps = p_.steps(), pitch = p_.pitch(), width = PanelWidth(p_, panel);
    const float* packed = call_.packed + panel * F::kSpots * steps * kWidth;
    if constexpr (kLanes >= 16 && P::kPair == 1) {
      if (IsShort<F, P>(p_, panel)) {
        for (int k = 0; k < F::kSpots; ++k)
          ShortProducts<P>(tiles_, packed + k * steps * kLanes, sources_ + k * p_.task_tiles() * pitch,
              products_ + k * p_.task_tiles() * width);
        return;
      }
    }
    const Runs runs{.length = steps};
    const Deal deal{tiles_, ceil_div(tiles_, kRows)};
    const auto& tiles = width == kWidth ? kRunTiles<P, 2> : kRunTiles<P, 1>;
    for (int k = 0; k < F::kSpots; ++k, packed += steps * kWidth) {
      for (int64_t part = 0; part < deal.parts(); ++part) {
        const int64_t t = k * p_.task_tiles() + deal.begin(part);
        tiles[deal.size(part)](runs, 0, steps, sources_ + t * pitch, pitch, packed, products_ + t * width, width, {});
      }
    }
  }

  // A^T m A, and the epilogue.
  HWY_INLINE void transform_result(const TilePlace<F>& place, int64_t t, int64_t panel) const {
    const int64_t height = p_.result_height(), width = p_.result_width(), columns = p_.columns();
    const int64_t first = ((place.image * height + place.row) * width + place.column) * columns + panel * kWidth;
    const int64_t rows_left = height - place.row, columns_left = width - place.column;
    // Rows of half panels are contiguous, so that they use all cache sets.
    const int64_t pitch = PanelWidth(p_, panel), spot = p_.task_tiles() * pitch;
    const auto transform = [](const V* m, V* out) LINNET_LAMBDA { F::Result(m, out); };
    for (int h = 0; h * kLanes < pitch; ++h) {
      const float* from = products_ + t * pitch + h * kLanes;
      const int64_t filter = panel * kWidth + h * kLanes;
      const auto load = [&](int i, int j) LINNET_LAMBDA { return hn::Load(d, from + (i * F::kSide + j) * spot); };
      const auto store_at = [&](int i, int j, V x)
                                LINNET_LAMBDA { store(x, first + (i * width + j) * columns + h * kLanes, filter); };
      if (rows_left >= F::kResults && columns_left >= F::kResults) {
        OnBothAxes<F::kSide, F::kResults>(transform, load, store_at);
      } else {
        OnBothAxes<F::kSide, F::kResults>(transform, load, [&](int i, int j, V x) LINNET_LAMBDA {
          if (i < rows_left && j < columns_left) store_at(i, j, x);
        });
      }
    }
    if (call_.epilogue.activation <= GemmActivation::kRelu) return;
    for (int64_t i = 0; i < std::min<int64_t>(F::kResults, rows_left); ++i)
      tile::ActivateRows(call_.epilogue.activation, std::min<int64_t>(F::kResults, columns_left), pitch,
          call_.result.as<Result>() + first + i * width * columns, columns);
  }

  HWY_INLINE void store(V x, int64_t index, int64_t filter) const {
    const WholeLanes whole{0};
    if (has_epilogue_) {
      const float* residual = call_.epilogue.residual ? call_.epilogue.residual + index : nullptr;
      x = WithEpilogue(call_.epilogue, x, whole, filter, residual);
    }
    whole.store(x, call_.result.as<Result>() + index);
  }

  const WinogradCall& call_;
  const WinogradProblem& p_;
  const int64_t first_, tiles_;
  float *const sources_, *const products_, *const zeros_;  // [kSpots][task_tiles][pitch]; [kSpots][task_tiles][kWidth]
  const bool has_epilogue_;
};

template <class F, class P> void pack_winograd_filters(const WinogradPackCall& call, ThreadPool& pool) {
  const WinogradProblem& p = call.problem;
  pool.run(ceil_div(p.columns(), kWidth), [&](int64_t panel, int worker) {
    (p.gradient ? PackGradient<F, P> : PackForward<F, P>)(call, panel, call.scratch + worker * p.pack_floats());
  });
}

template <class F, class P, class Source, class Result> void run_winograd(const WinogradCall& call, ThreadPool& pool) {
  const WinogradProblem& p = call.problem;
  const int64_t blocks = ceil_div(p.tiles(), p.task_tiles()), panels = ceil_div(p.columns(), kWidth);
  const Deal tiles{p.tiles(), blocks};
  // A block's source is transformed once for each part of the panels, which costs little.
  const int64_t parts = std::clamp<int64_t>(4 * pool.size() / blocks, 1, panels);
  const Deal deal{panels, parts};
  pool.run(blocks * parts, [&](int64_t task, int worker) {
    const int64_t part = task % parts, block = task / parts;
    WinogradTask<F, P, Source, Result>(
        call, tiles.begin(block), tiles.size(block), call.scratch + worker * p.scratch_floats())
        .run(deal.begin(part), deal.begin(part + 1));
  });
}

// The gradient of the filters: for each spot of a tile the product of transformed dy and transformed sources, summed
// over tiles, then one inverse transformation. In bf16 sources and dy are transformed in fp32 and then rounded; a
// packed element is a pair of neighboring tiles, the second zero after the last tile.

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
