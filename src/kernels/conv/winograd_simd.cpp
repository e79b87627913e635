// Filters of 3 x 3 that visit every pixel, by Winograd's minimal filtering (winograd-inl.h): the forward pass and the
// input gradient.
#include <algorithm>
#include <array>

#include "base/thread_pool.h"
#include "kernels/conv/convolution.h"
#include "kernels/conv/convolution_layout.h"
#include "kernels/gemm/gemm_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv/winograd_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/conv/winograd-inl.h"
#include "kernels/gemm/gemm_pack-inl.h"

#ifndef LINNET_KERNELS_WINOGRAD_CALL
#define LINNET_KERNELS_WINOGRAD_CALL
namespace linnet {
namespace {

struct WinogradCall {
  const convolution_layout::WinogradProblem& problem;
  const float *source, *packed;
  float *result, *scratch;  // scratch: problem.scratch_floats() for each thread
  const ConvolutionEpilogue& epilogue;
};

struct WinogradPackCall {
  const convolution_layout::WinogradProblem& problem;
  const float* weight;
  float *packed, *scratch;
};

}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

using namespace convolution;
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

constexpr int64_t kPackedChannels = WinogradProblem::kPackedChannels;

// Results of a panel: kWidth, or kLanes in the last one.
HWY_INLINE int64_t PanelWidth(const WinogradProblem& p, int64_t panel) {
  return std::min<int64_t>(kWidth, p.columns() - panel * kWidth);
}

// Panel `panel` of the transformed filters: [kSpots][depth][kWidth].
void PackForward(const WinogradPackCall& call, int64_t panel, float* scratch) {
  const WinogradProblem& p = call.problem;
  const int64_t depth = p.depth(), first = panel * kWidth, width = PanelWidth(p, panel);
  float* out = call.packed + panel * kSpots * depth * kWidth;
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
      tile::PackPanelTransposed(scratch + k * kWidth * kPackedChannels, kPackedChannels, channels, width,
                                out + (k * depth + c) * kWidth);
  }
}

// The input gradient is a convolution of dy with the filters turned by half a turn, filters and channels exchanged.
void PackGradient(const WinogradPackCall& call, int64_t panel) {
  const WinogradProblem& p = call.problem;
  const int64_t depth = p.depth(), channels = p.columns();
  float* out = call.packed + panel * kSpots * depth * kWidth;
  for (int64_t o = 0; o < depth; ++o)
    for (int h = 0; h * kLanes < PanelWidth(p, panel); ++h) {
      const float* weight = call.weight + o * 9 * channels + panel * kWidth + h * kLanes;
      V u[kSpots];
      TransformFilters(
          [&](int r, int s) LINNET_LAMBDA { return hn::LoadU(d, weight + (3 * (2 - r) + 2 - s) * channels); }, u);
      for (int k = 0; k < kSpots; ++k) hn::Store(u[k], d, out + (k * depth + o) * kWidth + h * kLanes);
    }
}

// Tiles [tile, tile + tiles) and panels [panel, panel_end) of their results.
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
    for (int64_t t = 0; t < tiles_; ++t) transform_source(t);
    for (; panel < panel_end; ++panel) {
      multiply(panel);
      for (int64_t t = 0; t < tiles_; ++t) transform_result(t, panel);
    }
  }

 private:
  HWY_INLINE TilePlace place(int64_t t) const { return {first_ + t, p_.tile_rows(), p_.tile_columns()}; }

  HWY_INLINE void transform_source(int64_t t) const {
    const TilePlace at = place(t);
    const int64_t height = p_.source_height(), width = p_.source_width(), depth = p_.depth();
    const StripSource image{call_.source + at.image * height * width * depth, height, width, depth, depth};
    TransformSource(image, at.row + p_.origin(), at.column + p_.origin(), zeros_, sources_ + t * p_.pitch(),
                    p_.task_tiles() * p_.pitch());
  }

  HWY_INLINE void multiply(int64_t panel) const {
    const int64_t depth = p_.depth(), pitch = p_.pitch();
    const Runs runs{.length = depth};
    const Deal deal{tiles_, ceil_div(tiles_, kRows)};
    const auto& tiles = PanelWidth(p_, panel) == kWidth ? kRunTiles<tile::F32, 2> : kRunTiles<tile::F32, 1>;
    for (int k = 0; k < kSpots; ++k) {
      const float* packed = call_.packed + (panel * kSpots + k) * depth * kWidth;
      for (int64_t part = 0; part < deal.parts(); ++part) {
        const int64_t t = k * p_.task_tiles() + deal.begin(part);
        tiles[static_cast<size_t>(deal.size(part))](runs, 0, depth, sources_ + t * pitch, pitch, packed,
                                                    products_ + t * kWidth, kWidth, false);
      }
    }
  }

  // A^T m A, and what the epilogue does to it.
  HWY_INLINE void transform_result(int64_t t, int64_t panel) const {
    const TilePlace at_tile = place(t);
    const int64_t height = p_.result_height(), width = p_.result_width(), columns = p_.columns();
    const int64_t first = ((at_tile.image * height + at_tile.row) * width + at_tile.column) * columns + panel * kWidth;
    const bool has_row = at_tile.row + 1 < height, has_column = at_tile.column + 1 < width;
    const int64_t spot = p_.task_tiles() * kWidth;
    for (int h = 0; h * kLanes < PanelWidth(p_, panel); ++h) {
      const float* from = products_ + t * kWidth + h * kLanes;
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
    const float* residual = call_.epilogue.residual ? call_.epilogue.residual + index : nullptr;
    hn::StoreU(WithEpilogue(call_.epilogue, x, WholeLanes{0}, filter, residual), d, call_.result + index);
  }

  const WinogradCall& call_;
  const WinogradProblem& p_;
  const int64_t first_, tiles_;
  float *const sources_, *const products_, *const zeros_;  // [kSpots][task_tiles][pitch]; [kSpots][task_tiles][kWidth]
};

void winograd_pack(const WinogradPackCall& call, ThreadPool& pool) {
  const WinogradProblem& p = call.problem;
  pool.run(ceil_div(p.columns(), kWidth), [&](int64_t panel, int worker) {
    if (p.gradient)
      PackGradient(call, panel);
    else
      PackForward(call, panel, call.scratch + worker * p.pack_floats());
  });
}

void winograd(const WinogradCall& call, ThreadPool& pool) {
  const WinogradProblem& p = call.problem;
  const int64_t blocks = ceil_div(p.tiles(), p.task_tiles()), panels = ceil_div(p.columns(), kWidth);
  const Deal tiles{p.tiles(), blocks};
  // A block's source is transformed once for each part of the panels, which costs little.
  const int64_t parts = std::clamp<int64_t>(4 * pool.size() / blocks, 1, panels);
  const Deal deal{panels, parts};
  pool.run(blocks * parts, [&](int64_t task, int worker) {
    const int64_t part = task % parts, block = task / parts;
    WinogradTask(call, tiles.begin(block), tiles.size(block), call.scratch + worker * p.scratch_floats())
        .run(deal.begin(part), deal.begin(part + 1));
  });
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/conv/convolution_calls.h"

namespace linnet {
namespace {

HWY_EXPORT(winograd_pack);
HWY_EXPORT(winograd);

}  // namespace

void pack_winograd(const convolution_layout::WinogradProblem& problem, const float* weight, float* packed,
                   float* scratch, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(winograd_pack)(WinogradPackCall{problem, weight, packed, scratch}, pool);
}

void convolution_by_winograd(const convolution_layout::WinogradProblem& problem, const float* source,
                             const float* packed, float* result, float* scratch, ThreadPool& pool,
                             const ConvolutionEpilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(winograd)(WinogradCall{problem, source, packed, result, scratch, epilogue}, pool);
}

}  // namespace linnet
#endif
