// The weight gradient: every filter element is a sum over all pixels. Images are dealt to partial sums by their sizes,
// so that the bits do not depend on the threads, and the partial sums are added in order.
#include <algorithm>

#include "base/thread_pool.h"
#include "kernels/conv/convolution_calls.h"
#include "kernels/gemm/gemm_tasks.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv/convolution_weight_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/conv/convolution-inl.h"

#ifndef LINNET_KERNELS_CONVOLUTION_WEIGHT_CALL
#define LINNET_KERNELS_CONVOLUTION_WEIGHT_CALL
namespace linnet {
namespace {

struct WeightCall {
  const convolution_layout::WeightProblem& problem;
  const float *x, *dy;
  float* sums;     // [partials, O, R, S, C / groups]
  float* scratch;  // problem.scratch_floats() for each thread
};

}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

using namespace convolution;
using namespace convolution_layout;

// Runs of x that lie side by side in a strip and in the filter: whole rows of a filter, or a tap's channels.
struct FilterRuns {
  explicit FilterRuns(const WeightProblem& p)
      : joined(p.strips.pitch == p.s.group_channels() && p.s.dilation == 1),
        count(joined ? p.s.rows : p.s.taps()),
        length((joined ? p.s.columns : 1) * p.s.group_channels()) {}
  // Where run i begins in a strip.
  int64_t offset(const WeightProblem& p, int64_t i) const {
    const int64_t row = joined ? i : i / p.s.columns, column = joined ? 0 : i % p.s.columns;
    return (row * p.strips.columns + column) * p.s.dilation * p.strips.pitch;
  }
  bool joined;
  int64_t count, length;
};

class WeightTask {
 public:
  HWY_INLINE WeightTask(const WeightCall& call, int64_t group, int64_t partial, float* scratch)
      : call_(call), p_(call.problem), group_(group), partial_(partial), scratch_(scratch) {}

  // Adds up columns [begin, end) of all runs' panels, counted from the first panel of the first run.
  HWY_INLINE void run(const FilterRuns& runs, int64_t begin, int64_t end) const {
    const Deal units{p_.units, p_.partials};
    const int64_t panels = ceil_div(runs.length, kWidth);
    for (int64_t unit = units.begin(partial_); unit < units.begin(partial_ + 1); ++unit) {
      const bool first = unit == units.begin(partial_);
      copy(unit);
      const Slopes slopes = slopes_of(unit);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = i % panels * kWidth, run = i / panels;
        multiply(slopes, unit, scratch_ + runs.offset(p_, run) + column,
                 std::min(runs.length - column, int64_t{kWidth}), run * runs.length + column, !first);
      }
    }
  }

 private:
  struct Slopes {
    const float* first;
    int64_t pitch;
  };

  HWY_INLINE int64_t image(int64_t unit) const { return unit / p_.strips.count; }
  HWY_INLINE int64_t strip(int64_t unit) const { return unit % p_.strips.count; }

  HWY_INLINE void copy(int64_t unit) const {
    const ConvolutionSizes& s = p_.s;
    const Strips& strips = p_.strips;
    const StripSource from{call_.x + image(unit) * s.height * s.width * s.channels + group_ * s.group_channels(),
                           s.height, s.width, s.channels, s.group_channels()};
    CopyStrip(from, strips.first_row + strip(unit) * strips.height * s.stride,
              strips.source_rows(strips.height_of(strip(unit))), strips.first_column, strips.columns, strips.pitch,
              scratch_);
  }

  // dy of the strip, copied where its pixels are a large power of two apart.
  HWY_INLINE Slopes slopes_of(int64_t unit) const {
    const ConvolutionSizes& s = p_.s;
    const int64_t row = image(unit) * s.out_height + strip(unit) * p_.strips.height;
    const float* dy = call_.dy + row * s.out_width * s.filters + group_ * s.group_filters();
    if (!p_.copies_dy()) return {dy, s.filters};
    float* out = scratch_ + p_.strips.floats;
    CopyStrip({dy, p_.strips.height_of(strip(unit)), s.out_width, s.filters, s.group_filters()}, 0,
              p_.strips.height_of(strip(unit)), 0, s.out_width, p_.slope_pitch(), out);
    return {out, p_.slope_pitch()};
  }

  HWY_INLINE void multiply(const Slopes& slopes, int64_t unit, const float* x, int64_t width, int64_t column,
                           bool accumulate) const {
    const ConvolutionSizes& s = p_.s;
    const Strips& strips = p_.strips;
    const int64_t step = s.stride * strips.pitch, ldc = s.taps() * s.group_channels();
    const Pixels pixels{strips.height_of(strip(unit)), s.out_width, step,
                        s.stride * strips.columns * strips.pitch - s.out_width * step, slopes.pitch};
    const bool narrow = width <= kLanes, whole = width == (narrow ? kLanes : kWidth);
    const auto& tiles = narrow ? kPixelTiles<1> : kPixelTiles<2>;
    float* sums = call_.sums + partial_ * p_.elements + group_ * s.group_filters() * ldc + column;
    const Deal deal{s.group_filters(), ceil_div(s.group_filters(), kRows)};
    for (int64_t t = 0; t < deal.parts(); ++t) {
      const int rows = static_cast<int>(deal.size(t));
      ForColumns(rows, width, whole, sums + deal.begin(t) * ldc, ldc, accumulate,
                 [&](float* c, int64_t c_stride, bool add)
                     LINNET_LAMBDA { tiles[rows](pixels, slopes.first + deal.begin(t), x, c, c_stride, add); });
    }
  }

  const WeightCall& call_;
  const WeightProblem& p_;
  const int64_t group_, partial_;
  float* const scratch_;
};

void convolution_weights(const WeightCall& call, ThreadPool& pool) {
  const WeightProblem& p = call.problem;
  const FilterRuns runs(p);
  const int64_t panels = runs.count * ceil_div(runs.length, kWidth), blocks = p.s.groups * p.partials;
  const int64_t parts = std::clamp<int64_t>(ceil_div(4 * pool.size(), blocks), 1, panels);
  const Deal deal{panels, parts};
  pool.run(blocks * parts, [&](int64_t task, int worker) {
    const int64_t part = task % parts, partial = task / parts % p.partials, group = task / parts / p.partials;
    WeightTask(call, group, partial, call.scratch + worker * p.scratch_floats())
        .run(runs, deal.begin(part), deal.begin(part + 1));
  });
}

void add_partials(const WeightProblem& p, const float* sums, float* dweight, ThreadPool& pool) {
  for_ranges(pool, p.elements, p.partials, [&](int64_t begin, int64_t end) {
    AddRows(p.partials, p.elements, end - begin, sums + begin, false, dweight + begin);
  });
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(convolution_weights);
HWY_EXPORT(add_partials);

}  // namespace

void convolution_weights_by_pixels(const convolution_layout::WeightProblem& problem, const float* x, const float* dy,
                                   float* dweight, float* workspace, ThreadPool& pool) {
  const bool parts = problem.partials > 1;
  const WeightCall call{problem, x, dy, parts ? workspace : dweight, workspace + problem.shared_floats()};
  HWY_DYNAMIC_DISPATCH(convolution_weights)(call, pool);
  if (parts) HWY_DYNAMIC_DISPATCH(add_partials)(problem, workspace, dweight, pool);
}

}  // namespace linnet
#endif
