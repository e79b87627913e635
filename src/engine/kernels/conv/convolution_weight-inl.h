// The weight gradient: every filter element is a sum over all pixels. Images are dealt to partial sums by their sizes,
// so that the bits do not depend on the threads, and the partial sums are added in order.
//
// The policy P (gemm_tile-inl.h) says what is multiplied. In bf16 a step of the sum is a pair of neighboring results of
// a row. The strip then holds pairs, too: of each pixel and the pixel that the next result meets under the same tap.
//
// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_CONVOLUTION_WEIGHT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_CONVOLUTION_WEIGHT_INL_H_
#undef LINNET_KERNELS_CONVOLUTION_WEIGHT_INL_H_
#else
#define LINNET_KERNELS_CONVOLUTION_WEIGHT_INL_H_
#endif

#include <algorithm>
#include <utility>
#include "base/thread_pool.h"
#include "engine/kernels/conv/convolution-inl.h"
#include "engine/kernels/conv/convolution_calls.h"
#include "engine/kernels/gemm/gemm_tasks.h"
#include "engine/kernels/stored_floats.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::convolution {

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
  // Panels of vectors that a run has: of its elements, or of filters.
  int64_t panels(const WeightProblem& p) const {
    return ceil_div(p.filters_are_lanes() ? p.s.filters : length, int64_t{kWidth});
  }
  bool joined;
  int64_t count, length;
};

// Copies pairs of pixels from rows [row, row + rows) of an image in bf16. In each row it makes `columns` pairs, whose
// first pixels are `step` columns apart, from `column` on; the second pixel of a pair is `apart` columns behind its
// first. Pixels outside of the image are zero.
struct PairSource {
  const Bfloat16* image;
  int64_t height, width, channels;
};
HWY_INLINE void CopyPairs(const PairSource& from, int64_t row, int64_t rows, int64_t column, int64_t columns,
                          int64_t step, int64_t apart, int64_t pitch, float* out) {
  const hn::RebindToUnsigned<tile::D> du;
  const auto inside = [&](int64_t j) { return j >= 0 && j < from.width; };
  for (int64_t i = row; i < row + rows; ++i) {
    const bool there = i >= 0 && i < from.height;
    const Bfloat16* source = from.image + i * from.width * from.channels;
    for (int64_t j = column; j < column + columns * step; j += step, out += pitch) {
      const bool low = there && inside(j), high = there && inside(j + apart);
      if (!low && !high) {
        std::fill_n(out, from.channels, 0.0f);
        continue;
      }
      const Bfloat16 *first = source + j * from.channels, *second = first + apart * from.channels;
      ForRow(from.channels, [=](const auto& at) LINNET_LAMBDA {
        const auto x = low ? hn::BitCast(du, at.load(first)) : hn::Zero(du);
        const auto y = high ? hn::BitCast(du, at.load(second)) : hn::Zero(du);
        at.store(hn::BitCast(d, hn::Or(hn::ShiftRight<16>(x), y)), out);
      });
    }
  }
}

template <class P>
class WeightTask {
 public:
  HWY_INLINE WeightTask(const WeightCall& call, int64_t group, int64_t partial, float* scratch)
      : call_(call),
        p_(call.problem),
        sums_(p_.has_sums() ? call.sums : call.dweight),
        group_(group),
        partial_(partial),
        scratch_(scratch) {}

  // Adds up columns [begin, end) of all runs' panels, counted from the first panel of the first run.
  HWY_INLINE void run(const FilterRuns& runs, int64_t begin, int64_t end) const {
    const Deal units{p_.units, p_.partials};
    const int64_t panels = runs.panels(p_);
    const int64_t last = units.begin(partial_ + 1);
    for (int64_t unit = units.begin(partial_); unit < last; unit += p_.task_units) {
      const bool accumulate = unit != units.begin(partial_);
      const int64_t count = std::min(p_.task_units, last - unit);
      for (int64_t u = 0; u < count; ++u) copy(unit + u, scratch_ + u * p_.strips.floats);
      const Slopes slopes = slopes_of(unit, count);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = i % panels * kWidth, run = i / panels;
        if (p_.filters_are_lanes()) {
          multiply_turned(slopes, pixels_of(slopes, unit, count), runs, run, column, accumulate);
        } else {
          multiply(slopes, pixels_of(slopes, unit, count), scratch_ + runs.offset(p_, run) + column,
                   std::min(runs.length - column, int64_t{kWidth}), run * runs.length + column, accumulate);
        }
      }
    }
  }

 private:
  struct Slopes {
    const float* first;
    int64_t pitch, next;  // floats from pixel to pixel, and from the end of a strip to the next
  };

  HWY_INLINE int64_t image(int64_t unit) const { return unit / p_.strips.count; }
  HWY_INLINE int64_t strip(int64_t unit) const { return unit % p_.strips.count; }

  HWY_INLINE void copy(int64_t unit, float* out) const {
    const ConvolutionSizes& s = p_.s;
    const Strips& strips = p_.strips;
    const int64_t row = strips.first_row + strip(unit) * strips.height * s.stride;
    const int64_t rows = strips.source_rows(strips.height_of(strip(unit)));
    const int64_t first = image(unit) * s.height * s.width * s.channels + group_ * s.group_channels();
    if constexpr (P::kPair == 2) {
      const PairSource from{call_.x.bf16() + first, s.height, s.width, s.channels};
      CopyPairs(from, row, rows, strips.first_column, strips.columns, 1, s.stride, strips.pitch, out);
    } else {
      const StripSource from{call_.x.f32() + first, s.height, s.width, s.channels, s.group_channels()};
      CopyStrip(from, row, rows, strips.first_column, strips.columns, strips.pitch, out);
    }
  }

  // dy of the strips, copied where its pixels are a large power of two apart.
  HWY_INLINE Slopes slopes_of(int64_t unit, int64_t count) const {
    const ConvolutionSizes& s = p_.s;
    const auto first = [&](int64_t u) LINNET_LAMBDA {
      const int64_t row = image(u) * s.out_height + strip(u) * p_.strips.height;
      return row * s.out_width * s.filters + group_ * s.group_filters();
    };
    if (!p_.copies_dy()) return {call_.dy.f32() + first(unit), s.filters, 0};
    float* const out = scratch_ + p_.task_units * p_.strips.floats;
    const int64_t rows = p_.strips.height_of(strip(unit));
    for (int64_t u = 0; u < count; ++u) {
      float* const to = out + u * p_.slope_floats();
      if constexpr (P::kPair == 2) {
        const PairSource from{call_.dy.bf16() + first(unit + u), rows, s.out_width, s.filters};
        CopyPairs(from, 0, rows, 0, p_.row_steps(), 2, 1, p_.slope_pitch(), to);
      } else {
        const float* dy = call_.dy.f32() + first(unit + u);
        CopyStrip({dy, rows, s.out_width, s.filters, s.group_filters()}, 0, rows, 0, s.out_width, p_.slope_pitch(), to);
      }
    }
    return {out, p_.slope_pitch(), p_.slope_floats() - rows * p_.row_steps() * p_.slope_pitch()};
  }

  HWY_INLINE Pixels pixels_of(const Slopes& slopes, int64_t unit, int64_t count) const {
    const Strips& strips = p_.strips;
    const int64_t step = P::kPair * p_.s.stride * strips.pitch, row = p_.s.stride * strips.columns * strips.pitch;
    const int64_t rows = strips.height_of(strip(unit));
    return {.rows = rows,
            .columns = p_.row_steps(),
            .x_step = step,
            .x_row = row - p_.row_steps() * step,
            .slope_step = slopes.pitch,
            .strips = count,
            .x_strip = strips.floats - rows * row,
            .slope_strip = slopes.next};
  }

  HWY_INLINE void multiply(const Slopes& slopes, const Pixels& pixels, const float* x, int64_t width, int64_t column,
                           bool accumulate) const {
    const ConvolutionSizes& s = p_.s;
    const int64_t ldc = s.taps() * s.group_channels();
    const bool narrow = width <= kLanes, whole = width == (narrow ? kLanes : kWidth);
    const auto& tiles = narrow ? kPixelTiles<P, 1> : kPixelTiles<P, 2>;
    float* sums = sums_ + partial_ * p_.elements + group_ * s.group_filters() * ldc + column;
    const Deal deal{s.group_filters(), ceil_div(s.group_filters(), kRows)};
    for (int64_t t = 0; t < deal.parts(); ++t) {
      const int rows = static_cast<int>(deal.size(t));
      ForColumns(rows, width, whole, sums + deal.begin(t) * ldc, ldc, accumulate,
                 [&](float* c, int64_t c_stride, bool add)
                     LINNET_LAMBDA { tiles[rows](pixels, slopes.first + deal.begin(t), x, c, c_stride, add); });
    }
  }

  // Filters [column, column + width) of run `run`: dy lies along the vectors, and the run down the tile.
  HWY_INLINE void multiply_turned(const Slopes& slopes, const Pixels& pixels, const FilterRuns& runs, int64_t run,
                                  int64_t column, bool accumulate) const {
    const ConvolutionSizes& s = p_.s;
    const int64_t width = std::min<int64_t>(kWidth, s.filters - column);
    Pixels turned = pixels;
    std::swap(turned.x_step, turned.slope_step);
    std::swap(turned.x_row, turned.slope_row);
    std::swap(turned.x_strip, turned.slope_strip);
    const auto& tiles = width <= kLanes ? kPixelTiles<P, 1> : kPixelTiles<P, 2>;
    const float* x = scratch_ + runs.offset(p_, run);
    float* sums = sums_ + partial_ * p_.elements + run * runs.length * s.filters + column;
    const Deal deal{runs.length, ceil_div(runs.length, kRows)};
    for (int64_t t = 0; t < deal.parts(); ++t)
      tiles[static_cast<size_t>(deal.size(t))](turned, x + deal.begin(t), slopes.first + column,
                                               sums + deal.begin(t) * s.filters, s.filters, accumulate);
  }

  const WeightCall& call_;
  const WeightProblem& p_;
  float* const sums_;
  const int64_t group_, partial_;
  float* const scratch_;
};

template <class P>
void run_weights(const WeightCall& call, ThreadPool& pool) {
  const WeightProblem& p = call.problem;
  const FilterRuns runs(p);
  const int64_t panels = runs.count * runs.panels(p), blocks = p.s.groups * p.partials;
  const int64_t parts = std::clamp<int64_t>(ceil_div(4 * pool.size(), blocks), 1, panels);
  const Deal deal{panels, parts};
  pool.run(blocks * parts, [&](int64_t task, int worker) {
    const int64_t part = task % parts, partial = task / parts % p.partials, group = task / parts / p.partials;
    WeightTask<P>(call, group, partial, call.scratch + worker * p.scratch_floats())
        .run(runs, deal.begin(part), deal.begin(part + 1));
  });
  if (p.has_sums()) AddPartials<P>(call, p.filters_are_lanes(), pool);
}

}  // namespace linnet::HWY_NAMESPACE::convolution
HWY_AFTER_NAMESPACE();

#endif
