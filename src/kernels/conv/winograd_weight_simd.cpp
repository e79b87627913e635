// The gradient of filters of 3 x 3 by Winograd's minimal filtering (winograd-inl.h): for each spot of the 4 x 4 the
// product of transformed dy and transformed sources, summed over tiles, and at the end one transformation back.
#include <algorithm>

#include "base/thread_pool.h"
#include "kernels/conv/convolution.h"
#include "kernels/conv/convolution_layout.h"
#include "kernels/gemm/gemm_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv/winograd_weight_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/conv/winograd-inl.h"

#ifndef LINNET_KERNELS_WINOGRAD_WEIGHT_CALL
#define LINNET_KERNELS_WINOGRAD_WEIGHT_CALL
namespace linnet {
namespace {

struct WinogradWeightCall {
  const convolution_layout::WinogradWeightProblem& problem;
  const float *x, *dy;
  float *sums, *dweight;  // sums: [partials, spots, O, C]
  float* scratch;         // problem.scratch_floats() for each thread
};

}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

using namespace convolution;
using namespace convolution_layout;

// Filters [begin, end) of a partial sum.
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
        slopes_(sources_ + kSpots * p_.task_tiles * p_.source_pitch()),
        zeros_(slopes_ + kSpots * p_.task_tiles * p_.slope_pitch()) {}

  HWY_INLINE void run() const {
    std::fill_n(zeros_, p_.source_pitch() + p_.slope_pitch(), 0.0f);
    const Deal blocks{p_.blocks, p_.partials}, tiles{p_.tiles(), p_.blocks};
    for (int64_t block = blocks.begin(partial_); block < blocks.begin(partial_ + 1); ++block) {
      for (int64_t t = 0; t < tiles.size(block); ++t) transform(tiles.begin(block) + t, t);
      multiply(tiles.size(block), block != blocks.begin(partial_));
    }
  }

 private:
  HWY_INLINE void transform(int64_t tile, int64_t t) const {
    const ConvolutionSizes& s = p_.s;
    const TilePlace place(tile, p_.tile_rows(), p_.tile_columns());
    const StripSource image{call_.x + place.image * s.height * s.width * s.channels, s.height, s.width, s.channels,
                            s.channels};
    TransformSource(image, place.row - s.padding, place.column - s.padding, zeros_, sources_ + t * p_.source_pitch(),
                    p_.task_tiles * p_.source_pitch());
    transform_slopes(place, t);
  }

  // A dy A^T of this task's filters.
  HWY_INLINE void transform_slopes(const TilePlace& place, int64_t t) const {
    const ConvolutionSizes& s = p_.s;
    const float* pixels[4];
    for (int k = 0; k < 4; ++k) {
      const int64_t y = place.row + k / 2, x = place.column + k % 2;
      const bool inside = y < s.out_height && x < s.out_width;
      pixels[k] =
          inside ? call_.dy + ((place.image * s.out_height + y) * s.out_width + x) * s.filters + begin_ : zeros_;
    }
    float* out = slopes_ + t * p_.slope_pitch();
    const int64_t spot = p_.task_tiles * p_.slope_pitch();
    ForRow(end_ - begin_, [&](const auto& at) LINNET_LAMBDA {
      V rows[4][2];
      for (int j = 0; j < 2; ++j) {
        const V y0 = at.load(pixels[j]), y1 = at.load(pixels[2 + j]);
        rows[0][j] = y0;
        rows[1][j] = hn::Add(y0, y1);
        rows[2][j] = hn::Sub(y0, y1);
        rows[3][j] = hn::Neg(y1);
      }
      for (int i = 0; i < 4; ++i) {
        const V* r = rows[i];
        float* to = out + 4 * i * spot;
        at.store(r[0], to);
        at.store(hn::Add(r[0], r[1]), to + spot);
        at.store(hn::Sub(r[0], r[1]), to + 2 * spot);
        at.store(hn::Neg(r[1]), to + 3 * spot);
      }
    });
  }

  HWY_INLINE void multiply(int64_t tiles, bool accumulate) const {
    const int64_t channels = p_.s.channels, filters = p_.s.filters;
    const Pixels pixels{1, tiles, p_.source_pitch(), 0, p_.slope_pitch()};
    const Deal deal{end_ - begin_, ceil_div(end_ - begin_, kRows)};
    for (int k = 0; k < kSpots; ++k) {
      const float* sources = sources_ + k * p_.task_tiles * p_.source_pitch();
      const float* slopes = slopes_ + k * p_.task_tiles * p_.slope_pitch();
      float* sums = call_.sums + ((partial_ * kSpots + k) * filters + begin_) * channels;
      for (int64_t c = 0; c < channels; c += kWidth) {
        const auto& tile = channels - c >= kWidth ? kPixelTiles<tile::F32, 2> : kPixelTiles<tile::F32, 1>;
        for (int64_t part = 0; part < deal.parts(); ++part)
          tile[static_cast<size_t>(deal.size(part))](pixels, slopes + deal.begin(part), sources + c,
                                                     sums + deal.begin(part) * channels + c, channels, accumulate);
      }
    }
  }

  const WinogradWeightCall& call_;
  const WinogradWeightProblem& p_;
  const int64_t partial_, begin_, end_;
  float *const sources_, *const slopes_, *const zeros_;  // [kSpots][task_tiles][pitch] both
};

// out[3] = G^T [u0, u1, u2, u3]
HWY_INLINE void TransformBack(V u0, V u1, V u2, V u3, V* out) {
  const V half = hn::Set(d, 0.5f), sum = hn::Mul(half, hn::Add(u1, u2));
  out[0] = hn::Add(u0, sum);
  out[1] = hn::Mul(half, hn::Sub(u1, u2));
  out[2] = hn::Add(sum, u3);
}

// Filter `o` from the partial sums.
void FinishFilter(const WinogradWeightCall& call, int64_t o) {
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

void winograd_weights(const WinogradWeightCall& call, ThreadPool& pool) {
  const WinogradWeightProblem& p = call.problem;
  // The sources are transformed once for each part of the filters.
  const int64_t groups = p.s.filters / WinogradProblem::kMostLanes;
  const int64_t parts = std::clamp<int64_t>(ceil_div(2 * pool.size(), p.partials), 1, groups);
  const Deal deal{groups, parts};
  pool.run(p.partials * parts, [&](int64_t task, int worker) {
    const int64_t part = task % parts;
    WinogradWeightTask(call, task / parts, deal.begin(part) * WinogradProblem::kMostLanes,
                       deal.begin(part + 1) * WinogradProblem::kMostLanes, call.scratch + worker * p.scratch_floats())
        .run();
  });
  pool.run(p.s.filters, [&](int64_t o, int) { FinishFilter(call, o); });
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/conv/convolution_calls.h"

namespace linnet {
namespace {

HWY_EXPORT(winograd_weights);

}  // namespace

void convolution_weights_by_winograd(const convolution_layout::WinogradWeightProblem& problem, const float* x,
                                     const float* dy, float* dweight, float* workspace, ThreadPool& pool) {
  const WinogradWeightCall call{problem, x, dy, workspace, dweight, workspace + problem.shared_floats()};
  HWY_DYNAMIC_DISPATCH(winograd_weights)(call, pool);
}

}  // namespace linnet
#endif
