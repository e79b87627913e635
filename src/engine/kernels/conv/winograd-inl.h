// Shared by the kernels of Winograd's minimal filtering F(t x t, 3 x 3), t = 2 or 4: Lavin and Gray, "Fast Algorithms
// for Convolutional Neural Networks" (2015). A tile of t x t results y comes from (t + 2) x (t + 2) source pixels d and
// a filter g as
//
//   y = A^T [(G g G^T) * (B^T d B)] A,    dg = G^T [(A dy A^T) * (B^T d B)] G
//
// with (t + 2)^2 products for each channel, 16 or 36, where the sum over taps has 9 t^2, 36 or 144. The products of a
// spot of the (t + 2) x (t + 2), over all tiles and channels, are a matrix product.
#if defined(LINNET_KERNELS_WINOGRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_WINOGRAD_INL_H_
#undef LINNET_KERNELS_WINOGRAD_INL_H_
#else
#define LINNET_KERNELS_WINOGRAD_INL_H_
#endif

#include <algorithm>
#include <type_traits>
#include "base/thread_pool.h"
#include "engine/kernels/conv/convolution-inl.h"
#include "engine/kernels/conv/convolution_layout.h"
#include "engine/kernels/gemm/gemm_pack-inl.h"
#include "engine/kernels/gemm/gemm_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::convolution {
// `factor` is a constant
HWY_INLINE V Scaled(float factor, V x) { return factor == 1 ? x : hn::Mul(hn::Set(d, factor), x); }
HWY_INLINE V AddScaled(V sum, float factor, V x) {
  if (factor == 1) return hn::Add(sum, x);
  if (factor == -1) return hn::Sub(sum, x);
  return hn::MulAdd(hn::Set(d, factor), x, sum);
}

// The transformations along one axis. kResults: t; kSide: source pixels; kSpots: of a tile.
template <int kTile> struct Filtering;

template <> struct Filtering<2> {
  static constexpr int kResults = 2, kSide = 4, kSpots = 16;

  static HWY_INLINE void Source(const V* x, V* out) {  // B^T x
    out[0] = hn::Sub(x[0], x[2]);
    out[1] = hn::Add(x[1], x[2]);
    out[2] = hn::Sub(x[2], x[1]);
    out[3] = hn::Sub(x[1], x[3]);
  }
  static HWY_INLINE void Result(const V* m, V* out) {  // A^T m
    out[0] = hn::Add(hn::Add(m[0], m[1]), m[2]);
    out[1] = hn::Sub(hn::Sub(m[1], m[2]), m[3]);
  }
  static HWY_INLINE void Slope(const V* y, V* out) {  // A y
    out[0] = y[0];
    out[1] = hn::Add(y[0], y[1]);
    out[2] = hn::Sub(y[0], y[1]);
    out[3] = hn::Neg(y[1]);
  }
  static HWY_INLINE void Filter(const V* g, V* out) {  // G g
    const V half = hn::Set(d, 0.5f), outer = hn::Mul(half, hn::Add(g[0], g[2])), middle = hn::Mul(half, g[1]);
    out[0] = g[0];
    out[1] = hn::Add(outer, middle);
    out[2] = hn::Sub(outer, middle);
    out[3] = g[2];
  }
  static HWY_INLINE void FilterSlope(const V* u, V* out) {  // G^T u
    const V half = hn::Set(d, 0.5f), sum = hn::Mul(half, hn::Add(u[1], u[2]));
    out[0] = hn::Add(u[0], sum);
    out[1] = hn::Mul(half, hn::Sub(u[1], u[2]));
    out[2] = hn::Add(sum, u[3]);
  }
};

// The polynomials are interpolated at 0, a, -a, b, -b and infinity.
template <> struct Filtering<4> {
  static constexpr int kResults = 4, kSide = 6, kSpots = 36;
  static constexpr float kA = 0.625f, kB = 1.5f;
  static constexpr float kA2 = kA * kA, kB2 = kB * kB, kProduct = kA2 * kB2;
  static constexpr float kNormA = 1 / (2 * kA2 * (kA2 - kB2)), kNormB = 1 / (2 * kB2 * (kB2 - kA2));

  static HWY_INLINE void Source(const V* x, V* out) {
    const V even_a = AddScaled(x[4], -kB2, x[2]), odd_a = AddScaled(x[3], -kB2, x[1]);
    const V even_b = AddScaled(x[4], -kA2, x[2]), odd_b = AddScaled(x[3], -kA2, x[1]);
    out[0] = AddScaled(AddScaled(x[4], -kA2 - kB2, x[2]), kProduct, x[0]);
    out[1] = AddScaled(even_a, kA, odd_a);
    out[2] = AddScaled(even_a, -kA, odd_a);
    out[3] = AddScaled(even_b, kB, odd_b);
    out[4] = AddScaled(even_b, -kB, odd_b);
    out[5] = AddScaled(AddScaled(x[5], -kA2 - kB2, x[3]), kProduct, x[1]);
  }
  static HWY_INLINE void Result(const V* m, V* out) {
    const V sum_a = hn::Add(m[1], m[2]), sum_b = hn::Add(m[3], m[4]);
    const V odd_a = hn::Sub(m[1], m[2]), odd_b = hn::Sub(m[3], m[4]);
    out[0] = hn::Add(hn::Add(m[0], sum_a), sum_b);
    out[1] = AddScaled(Scaled(kA, odd_a), kB, odd_b);
    out[2] = AddScaled(Scaled(kA2, sum_a), kB2, sum_b);
    out[3] = AddScaled(AddScaled(m[5], kA * kA2, odd_a), kB * kB2, odd_b);
  }
  static HWY_INLINE void Slope(const V* y, V* out) {
    const V even_a = AddScaled(y[0], kA2, y[2]), odd_a = AddScaled(y[1], kA2, y[3]);
    const V even_b = AddScaled(y[0], kB2, y[2]), odd_b = AddScaled(y[1], kB2, y[3]);
    out[0] = y[0];
    out[1] = AddScaled(even_a, kA, odd_a);
    out[2] = AddScaled(even_a, -kA, odd_a);
    out[3] = AddScaled(even_b, kB, odd_b);
    out[4] = AddScaled(even_b, -kB, odd_b);
    out[5] = y[3];
  }
  static HWY_INLINE void Filter(const V* g, V* out) {
    const V even_a = Scaled(kNormA, AddScaled(g[0], kA2, g[2])), odd_a = Scaled(kA * kNormA, g[1]);
    const V even_b = Scaled(kNormB, AddScaled(g[0], kB2, g[2])), odd_b = Scaled(kB * kNormB, g[1]);
    out[0] = Scaled(1 / kProduct, g[0]);
    out[1] = hn::Add(even_a, odd_a);
    out[2] = hn::Sub(even_a, odd_a);
    out[3] = hn::Add(even_b, odd_b);
    out[4] = hn::Sub(even_b, odd_b);
    out[5] = g[2];
  }
  static HWY_INLINE void FilterSlope(const V* u, V* out) {
    const V sum_a = Scaled(kNormA, hn::Add(u[1], u[2])), sum_b = Scaled(kNormB, hn::Add(u[3], u[4]));
    const V odd_a = Scaled(kNormA, hn::Sub(u[1], u[2])), odd_b = Scaled(kNormB, hn::Sub(u[3], u[4]));
    out[0] = AddScaled(hn::Add(sum_a, sum_b), 1 / kProduct, u[0]);
    out[1] = AddScaled(Scaled(kA, odd_a), kB, odd_b);
    out[2] = AddScaled(AddScaled(u[5], kA2, sum_a), kB2, sum_b);
  }
};

// The first result of a tile.
template <class F> class TilePlace {
 public:
  HWY_INLINE TilePlace(int64_t tile, int64_t tile_rows, int64_t tile_columns)
      : image(tile / (tile_rows * tile_columns)), row(tile % (tile_rows * tile_columns) / tile_columns * F::kResults),
        column(tile % tile_columns * F::kResults), rows_(F::kResults * tile_rows),
        columns_(F::kResults * tile_columns) {}
  HWY_INLINE void advance() {
    column += F::kResults;
    if (column < columns_) return;
    column = 0, row += F::kResults;
    if (row < rows_) return;
    row = 0, ++image;
  }
  int64_t image, row, column;

 private:
  int64_t rows_, columns_;
};

// An image whose pixels are contiguous. T: float or Bfloat16.
template <class T> struct TileSource {
  const T* image;
  int64_t height, width, channels;
};

// The kSize x kSize pixels from (row, column) on. zeros: a pixel outside of the image.
template <int kSize, class T>
HWY_INLINE void TilePixels(const TileSource<T>& image, int64_t row, int64_t column, const T* zeros, const T** pixels) {
  for (int64_t y = row; y < row + kSize; ++y, pixels += kSize) {
    const bool row_is_inside = y >= 0 && y < image.height;
    const T* const first = image.image + (y * image.width + column) * image.channels;
    for (int j = 0; j < kSize; ++j) {
      const bool inside = row_is_inside && column + j >= 0 && column + j < image.width;
      pixels[j] = inside ? first + j * image.channels : zeros;
    }
  }
}

// Hardware does not prefetch tiles of a few lines each, so kTilesAhead are.
constexpr int64_t kTilesAhead = 4;

// Prefetches kSize x kSize pixels from (row, column) on, except those outside of the image.
template <int kSize, class T> HWY_INLINE void FetchPixels(const TileSource<T>& image, int64_t row, int64_t column) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const T* first = image.image + (row * image.width + column) * image.channels;
  for (int i = 0; i < kSize; ++i, first += image.width * image.channels)
    for (int64_t k = 0; k < kSize * image.channels; k += kLine) hwy::Prefetch(first + k);
}

// body(pixel), where pixel(i, j) is a pixel's address. A tile inside of the image needs no table.
template <int kSize, class T, class Body>
HWY_INLINE void WithPixels(const TileSource<T>& image, int64_t row, int64_t column, const T* zeros, const Body& body) {
  if (row >= 0 && row + kSize <= image.height && column >= 0 && column + kSize <= image.width) {
    const int64_t channels = image.channels, pitch = image.width * channels;
    const T* const first = image.image + row * pitch + column * channels;
    body([=](int i, int j) LINNET_LAMBDA { return first + i * pitch + j * channels; });
  } else {
    const T* pixels[kSize * kSize];
    TilePixels<kSize>(image, row, column, zeros, pixels);
    body([&](int i, int j) LINNET_LAMBDA { return pixels[i * kSize + j]; });
  }
}

// Transforms kFrom values along both axes: load(i, j) of kFrom x kFrom, store(i, j, value) of kTo x kTo.
template <int kFrom, int kTo, class Transform, class Load, class Store>
HWY_INLINE void OnBothAxes(const Transform& transform, const Load& load, const Store& store) {
  V rows[kTo][kFrom];
  const auto do_column = [&](int j) LINNET_LAMBDA {
    V from[kFrom], to[kTo];
#pragma GCC unroll 6
    for (int i = 0; i < kFrom; ++i) from[i] = load(i, j);
    transform(from, to);
#pragma GCC unroll 6
    for (int i = 0; i < kTo; ++i) rows[i][j] = to[i];
  };
  const auto do_row = [&](int i) LINNET_LAMBDA {
    V to[kTo];
    transform(rows[i], to);
#pragma GCC unroll 6
    for (int j = 0; j < kTo; ++j) store(i, j, to[j]);
  };
  if constexpr (kFrom * kTo <= 16) {
#pragma GCC unroll 4
    for (int j = 0; j < kFrom; ++j) do_column(j);
#pragma GCC unroll 4
    for (int i = 0; i < kTo; ++i) do_row(i);
  } else {
    // More values than registers: in loops their addresses are cheap.
#pragma GCC unroll 1
    for (int j = 0; j < kFrom; ++j) do_column(j);
#pragma GCC unroll 1
    for (int i = 0; i < kTo; ++i) do_row(i);
  }
}

// B^T d B of a vector of channels: store(i, j, value) for each spot.
template <class F, class At, class Pixel, class Store>
HWY_INLINE void TransformPixels(const At& at, const Pixel& pixel, const Store& store) {
  OnBothAxes<F::kSide, F::kSide>([](const V* x, V* out) LINNET_LAMBDA { F::Source(x, out); },
      [&](int i, int j) LINNET_LAMBDA { return at.load(pixel(i, j)); }, store);
}

// A dy A^T of a vector of filters, of the pixels of dy: store(i, j, value) for each spot.
template <class F, class At, class Pixel, class Store>
HWY_INLINE void TransformSlopes(const At& at, const Pixel& pixel, const Store& store) {
  OnBothAxes<F::kResults, F::kSide>([](const V* y, V* out) LINNET_LAMBDA { F::Slope(y, out); },
      [&](int i, int j) LINNET_LAMBDA { return at.load(pixel(i, j)); }, store);
}

// G g G^T of a vector of filters or channels: tap(i, j) of 3 x 3, store(i, j, value) for each spot.
template <class F, class Tap, class Store> HWY_INLINE void TransformFilter(const Tap& tap, const Store& store) {
  OnBothAxes<3, F::kSide>([](const V* g, V* out) LINNET_LAMBDA { F::Filter(g, out); }, tap, store);
}

// The forward pass and the input gradient of 3 x 3 filters of stride 1. The policy P (gemm_pack-inl.h) gives the type
// of products. In bf16 sources and filters are transformed in fp32 and then rounded; a packed element is a pair of
// neighboring channels.

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

// The gradient of 3 x 3 filters: for each spot of a tile the product of transformed dy and transformed sources, summed
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

#endif
