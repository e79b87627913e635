// The forward pass and the input gradient of filters of 3 x 3 that visit every pixel, by Winograd's minimal filtering
// (winograd-inl.h).
//
// A policy P (gemm_pack-inl.h) says what is multiplied. In bf16 sources and filters are transformed in fp32 and then
// rounded; a packed element is a pair of neighboring channels.
//
// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_WINOGRAD_TAPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_WINOGRAD_TAPS_INL_H_
#undef LINNET_KERNELS_WINOGRAD_TAPS_INL_H_
#else
#define LINNET_KERNELS_WINOGRAD_TAPS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "base/thread_pool.h"
#include "kernels/conv/convolution_calls.h"
#include "kernels/conv/winograd-inl.h"
#include "kernels/gemm/gemm_pack-inl.h"
#include "kernels/gemm/gemm_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::convolution {

using namespace convolution_layout;

// out[4] = G [g0, g1, g2]
HWY_INLINE void TransformFilter(V g0, V g1, V g2, V* out) {
  const V half = hn::Set(d, 0.5f), outer = hn::Mul(half, hn::Add(g0, g2)), middle = hn::Mul(half, g1);
  out[0] = g0;
  out[1] = hn::Add(outer, middle);
  out[2] = hn::Sub(outer, middle);
  out[3] = g2;
}

// out[16] = G g G^T, tap(r, s) being g.
template <class Tap>
HWY_INLINE void TransformFilters(const Tap& tap, V* out) {
  V columns[3][4];
  for (int s = 0; s < 3; ++s) TransformFilter(tap(0, s), tap(1, s), tap(2, s), columns[s]);
  for (int i = 0; i < 4; ++i) TransformFilter(columns[0][i], columns[1][i], columns[2][i], out + 4 * i);
}

constexpr int64_t kFiltersAhead = 4;  // filters that are fetched before they are read: the latency of memory
constexpr int64_t kPackedChannels = WinogradProblem::kPackedChannels;

// Results of a panel: kWidth, or kLanes in the last one.
HWY_INLINE int64_t PanelWidth(const WinogradProblem& p, int64_t panel) {
  return std::min<int64_t>(kWidth, p.columns() - panel * kWidth);
}

// Panel `panel` of the transformed filters: [kSpots][steps][kWidth].
template <class P>
void PackForward(const WinogradPackCall& call, int64_t panel, float* scratch) {
  const WinogradProblem& p = call.problem;
  const int64_t depth = p.depth(), first = panel * kWidth, width = PanelWidth(p, panel);
  float* out = call.packed + panel * kSpots * p.steps() * kWidth;
  for (int64_t c = 0; c < depth; c += kPackedChannels) {
    const int64_t channels = std::min(kPackedChannels, depth - c);
    for (int64_t o = 0; o < width; ++o) {
      const float* weight = call.weight + (first + o) * 9 * depth + c;
      ForRow(channels, [&](const auto& at) LINNET_LAMBDA {
        V u[kSpots];
        TransformFilters([&](int r, int s) LINNET_LAMBDA { return at.load(weight + (3 * r + s) * depth); }, u);
        for (int k = 0; k < kSpots; ++k) at.store(u[k], scratch + (k * kWidth + o) * kPackedChannels);
      });
    }
    for (int k = 0; k < kSpots; ++k)
      tile::PackPanelTransposed<P>(scratch + k * kWidth * kPackedChannels, kPackedChannels, channels, width,
                                   out + (k * p.steps() + c / P::kPair) * kWidth);
  }
}

// The input gradient is a convolution of dy with the filters turned by half a turn, filters and channels exchanged.
template <class P>
void PackGradient(const WinogradPackCall& call, int64_t panel, float* scratch) {
  const WinogradProblem& p = call.problem;
  const int64_t depth = p.depth(), channels = p.columns(), width = PanelWidth(p, panel);
  float* out = call.packed + panel * kSpots * p.steps() * kWidth;
  for (int64_t o = 0; o < depth; o += kPackedChannels) {
    const int64_t filters = std::min(kPackedChannels, depth - o);
    for (int64_t i = 0; i < filters; ++i)
      for (int64_t c = 0; c < width; c += kLanes) {
        const float* weight = call.weight + (o + i) * 9 * channels + panel * kWidth + c;
        for (int tap = 0; tap < 9; ++tap) hwy::Prefetch(weight + (kFiltersAhead * 9 + tap) * channels);
        V u[kSpots];
        TransformFilters(
            [&](int r, int s) LINNET_LAMBDA { return hn::LoadU(d, weight + (3 * (2 - r) + 2 - s) * channels); }, u);
        for (int k = 0; k < kSpots; ++k) hn::Store(u[k], d, scratch + (k * kPackedChannels + i) * kWidth + c);
      }
    for (int k = 0; k < kSpots; ++k)
      tile::PackPanel<P>(scratch + k * kPackedChannels * kWidth, kWidth, filters, width,
                         out + (k * p.steps() + o / P::kPair) * kWidth);
  }
}

// Tiles [tile, tile + tiles) and panels [panel, panel_end) of their results. Source, Result: float or Bfloat16.
template <class P, class Source, class Result>
class WinogradTask {
 public:
  HWY_INLINE WinogradTask(const WinogradCall& call, int64_t first, int64_t tiles, float* scratch)
      : call_(call),
        p_(call.problem),
        first_(first),
        tiles_(tiles),
        sources_(scratch),
        products_(sources_ + kSpots * p_.task_tiles() * p_.pitch()),
        zeros_(products_ + kSpots * p_.task_tiles() * kWidth) {}

  HWY_INLINE void run(int64_t panel, int64_t panel_end) const {
    std::fill_n(zeros_, p_.pitch(), 0.0f);
    TilePlace place = first_place();
    for (int64_t t = 0; t < tiles_; ++t, place.advance()) transform_source(place, t);
    for (; panel < panel_end; ++panel) {
      multiply(panel);
      place = first_place();
      for (int64_t t = 0; t < tiles_; ++t, place.advance()) transform_result(place, t, panel);
    }
  }

 private:
  // What a packed source is stored as: pairs of neighboring channels are rows of bf16.
  using Packed = std::conditional_t<P::kPair == 2, Bfloat16, float>;

  HWY_INLINE TilePlace first_place() const { return {first_, p_.tile_rows(), p_.tile_columns()}; }
  // Floats from tile to tile of the products: rows of half panels lie side by side, so that they fill all sets of the
  // cache.
  HWY_INLINE int64_t product_pitch(int64_t panel) const { return PanelWidth(p_, panel); }

  HWY_INLINE void transform_source(const TilePlace& place, int64_t t) const {
    const int64_t height = p_.source_height(), width = p_.source_width(), depth = p_.depth();
    const TileSource<Source> image{static_cast<const Source*>(call_.source) + place.image * height * width * depth,
                                   height, width, depth};
    auto* const out = reinterpret_cast<Packed*>(sources_ + t * p_.pitch());
    const int64_t spot = p_.task_tiles() * p_.pitch() * P::kPair;
    WithPixels(image, place.row + p_.origin(), place.column + p_.origin(), reinterpret_cast<const Source*>(zeros_),
               [&](const auto& pixel) LINNET_LAMBDA {
                 ForRow(depth, [&](const auto& at) LINNET_LAMBDA {
                   TransformPixels(at, pixel, [&](int k, V x) LINNET_LAMBDA { at.store(x, out + k * spot); });
                 });
               });
  }

  HWY_INLINE void multiply(int64_t panel) const {
    const int64_t steps = p_.steps(), pitch = p_.pitch(), width = product_pitch(panel);
    const Runs runs{.length = steps};
    const Deal deal{tiles_, ceil_div(tiles_, kRows)};
    const auto& tiles = PanelWidth(p_, panel) == kWidth ? kRunTiles<P, 2> : kRunTiles<P, 1>;
    for (int k = 0; k < kSpots; ++k) {
      const float* packed = call_.packed + (panel * kSpots + k) * steps * kWidth;
      for (int64_t part = 0; part < deal.parts(); ++part) {
        const int64_t t = k * p_.task_tiles() + deal.begin(part);
        tiles[static_cast<size_t>(deal.size(part))](runs, 0, steps, sources_ + t * pitch, pitch, packed,
                                                    products_ + t * width, width, false);
      }
    }
  }

  // A^T m A, and what the epilogue does to it.
  HWY_INLINE void transform_result(const TilePlace& place, int64_t t, int64_t panel) const {
    const int64_t height = p_.result_height(), width = p_.result_width(), columns = p_.columns();
    const int64_t first = ((place.image * height + place.row) * width + place.column) * columns + panel * kWidth;
    const bool has_row = place.row + 1 < height, has_column = place.column + 1 < width;
    const int64_t pitch = product_pitch(panel), spot = p_.task_tiles() * pitch;
    for (int h = 0; h * kLanes < PanelWidth(p_, panel); ++h) {
      const float* from = products_ + t * pitch + h * kLanes;
      V rows[2][4];
      for (int j = 0; j < 4; ++j) {
        const auto m = [&](int i) LINNET_LAMBDA { return hn::Load(d, from + (4 * i + j) * spot); };
        const V m1 = m(1), m2 = m(2);
        rows[0][j] = hn::Add(hn::Add(m(0), m1), m2);
        rows[1][j] = hn::Sub(hn::Sub(m1, m2), m(3));
      }
      for (int i = 0; i < 2; ++i) {
        if (i == 1 && !has_row) break;
        const V* r = rows[i];
        const int64_t index = first + i * width * columns + h * kLanes, filter = panel * kWidth + h * kLanes;
        store(hn::Add(hn::Add(r[0], r[1]), r[2]), index, filter);
        if (has_column) store(hn::Sub(hn::Sub(r[1], r[2]), r[3]), index + columns, filter);
      }
    }
  }

  HWY_INLINE void store(V x, int64_t index, int64_t filter) const {
    const WholeLanes whole{0};
    const float* residual = call_.epilogue.residual ? call_.epilogue.residual + index : nullptr;
    whole.store(WithEpilogue(call_.epilogue, x, whole, filter, residual), static_cast<Result*>(call_.result) + index);
  }

  const WinogradCall& call_;
  const WinogradProblem& p_;
  const int64_t first_, tiles_;
  float *const sources_, *const products_, *const zeros_;  // [kSpots][task_tiles][pitch]; [kSpots][task_tiles][kWidth]
};

template <class P>
void pack_winograd_filters(const WinogradPackCall& call, ThreadPool& pool) {
  const WinogradProblem& p = call.problem;
  pool.run(ceil_div(p.columns(), kWidth), [&](int64_t panel, int worker) {
    (p.gradient ? PackGradient<P> : PackForward<P>)(call, panel, call.scratch + worker * p.pack_floats());
  });
}

template <class P, class Source, class Result>
void run_winograd(const WinogradCall& call, ThreadPool& pool) {
  const WinogradProblem& p = call.problem;
  const int64_t blocks = ceil_div(p.tiles(), p.task_tiles()), panels = ceil_div(p.columns(), kWidth);
  const Deal tiles{p.tiles(), blocks};
  // A block's source is transformed once for each part of the panels, which costs little.
  const int64_t parts = std::clamp<int64_t>(4 * pool.size() / blocks, 1, panels);
  const Deal deal{panels, parts};
  pool.run(blocks * parts, [&](int64_t task, int worker) {
    const int64_t part = task % parts, block = task / parts;
    WinogradTask<P, Source, Result>(call, tiles.begin(block), tiles.size(block),
                                    call.scratch + worker * p.scratch_floats())
        .run(deal.begin(part), deal.begin(part + 1));
  });
}

}  // namespace linnet::HWY_NAMESPACE::convolution
HWY_AFTER_NAMESPACE();

#endif
