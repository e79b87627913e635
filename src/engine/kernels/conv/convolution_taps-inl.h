// The forward pass and the input gradient as products whose left operand is never stored: the register tile reads a
// result's pixels from a strip of the image. Weights are packed once, for all threads. The policy P (gemm_tile-inl.h)
// gives the type of products. In bf16 a packed element is a pair of neighboring source channels: `problem` is that of
// an image of pairs with half as many channels.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include "base/thread_pool.h"
#include "engine/kernels/conv/convolution-inl.h"
#include "engine/kernels/conv/convolution_layout.h"
#include "engine/kernels/gemm/gemm_blocking.h"
#include "engine/kernels/gemm/gemm_tile-inl.h"
#include "engine/kernels/stored_floats.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::convolution {
using namespace convolution_layout;

// One phase of the results, and the offset of its packed weights in a group's.
struct Phase {
  int64_t row, column;  // phase of rows and columns
  Taps rows, columns;
  int64_t packed;
  int64_t taps() const { return rows.count * columns.count; }
};

template <class Visit> HWY_INLINE void ForPhases(const TapProblem& p, const Visit& visit) {
  const int64_t panels = ceil_div(p.columns(), kWidth);
  int64_t packed = 0;
  for (int64_t row = 0; row < p.phase_step(); ++row)
    for (int64_t column = 0; column < p.phase_step(); ++column) {
      const Phase phase{row, column, p.row_taps(row), p.column_taps(column), packed};
      visit(phase);
      packed += phase.taps() * p.depth() * panels * kWidth;
    }
}

// Panel `panel` of a group's weights: for every phase, [taps * depth, kWidth].
template <class P> void PackWeights(const PackCall& call, int64_t group, int64_t panel) {
  const TapProblem& p = call.problem;
  const ConvolutionSizes& s = p.s;
  // Values, P::kPair of which make a packed element.
  const int64_t channels = p.gradient ? s.group_channels() : s.group_channels() * P::kPair - p.half_pair;
  const int64_t filter = s.taps() * channels;  // of one filter
  const int64_t first = panel * kWidth, width = std::min<int64_t>(kWidth, p.columns() - first);
  const float* weight = call.weight + group * s.group_filters() * filter;
  ForPhases(p, [&](const Phase& phase) LINNET_LAMBDA {
    const int64_t depth = phase.taps() * p.depth();
    float* out = call.packed + group * p.packed_floats() + phase.packed + panel * depth * kWidth;
    if (p.half_pair) {  // each tap's channels are filled up to pairs
      for (int64_t tap = 0; tap < s.taps(); ++tap, out += p.depth() * kWidth)
        tile::PackPanelTransposed<P>(weight + first * filter + tap * channels, filter, channels, width, out);
      return;
    }
    if (!p.gradient) return tile::PackPanelTransposed<P>(weight + first * filter, filter, filter, width, out);
    for (int64_t a = 0; a < phase.rows.count; ++a)
      for (int64_t b = 0; b < phase.columns.count; ++b, out += p.depth() * kWidth) {
        const int64_t tap = (phase.rows.filter + a * phase.rows.filter_step) * s.columns + phase.columns.filter +
                            b * phase.columns.filter_step;
        tile::PackPanel<P>(weight + tap * channels + first, filter, p.depth() * P::kPair, width, out);
      }
  });
}

// Strips [unit, unit + units) of one group of channels, and panels [panel, panel_end) of its results. Result: float, or
// Bfloat16 if no sum is cut into blocks (TapProblem::sums_are_whole()).
template <class P, class Result> class TapTask {
 public:
  HWY_INLINE TapTask(
      const TapCall& call, int64_t group, int64_t unit, int64_t units, int64_t panel, int64_t panel_end, float* scratch)
      : call_(call), p_(call.problem), group_(group), unit_(unit), units_(units), panel_(panel), panel_end_(panel_end),
        scratch_(scratch) {}

  HWY_INLINE void run() const {
    for (int64_t u = 0; u < units_; ++u) copy(u);
    ForPhases(p_, [&](const Phase& phase) LINNET_LAMBDA {
      const Runs runs = runs_of(phase);
      const int64_t depth = phase.taps() * p_.depth();
      const Deal blocks{depth, std::max<int64_t>(1, ceil_div(depth, kDepth))};
      const float* packed = call_.packed + group_ * p_.packed_floats() + phase.packed;
      for (int64_t block = 0; block < blocks.parts(); ++block)
        for (int64_t panel = panel_; panel < panel_end_; ++panel)
          for (int64_t u = 0; u < units_; ++u) {
            if (depth == 0) zero(phase, u, panel);
            else
              multiply(phase, runs, u, panel, blocks.begin(block), blocks.size(block),
                  packed + (panel * depth + blocks.begin(block)) * kWidth, block + 1 == blocks.parts());
          }
    });
  }

 private:
  HWY_INLINE int64_t image(int64_t u) const { return (unit_ + u) / p_.strips.count; }
  HWY_INLINE int64_t strip(int64_t u) const { return (unit_ + u) % p_.strips.count; }
  HWY_INLINE float* memory(int64_t u) const { return scratch_ + u * p_.strips.floats; }

  HWY_INLINE void copy(int64_t u) const {
    if (p_.half_pair) return copy_half_pairs(u);
    const int64_t pixels = p_.source_height() * p_.source_width();
    const StripSource<float> from{call_.source.f32() + image(u) * pixels * p_.source_channels() + group_ * p_.depth(),
        p_.source_height(), p_.source_width(), p_.source_channels(), p_.depth()};
    CopyStrip(from, p_.strips.window(strip(u)), p_.strips.pitch, memory(u));
  }

  // For pixels with an odd number of channels: pads with zero.
  HWY_INLINE void copy_half_pairs(int64_t u) const {
    const int64_t height = p_.source_height(), width = p_.source_width(), channels = 2 * p_.depth() - 1;
    const int64_t pitch = p_.strips.pitch;
    const StripSource<Bfloat16> from{
        call_.source.bf16() + image(u) * height * width * channels, height, width, channels, channels};
    CopyStripBy(from, p_.strips.window(strip(u)), pitch, memory(u),
        [&](const Bfloat16* source, float* to, int64_t n) LINNET_LAMBDA {
          std::fill_n(to, n * pitch, 0.0f);
          // Constant sizes, because a pixel has few channels.
          for (int64_t j = 0; j < n; ++j, source += channels, to += pitch) {
            for (int64_t c = 0; c + 1 < channels; c += 2) std::memcpy(to + c / 2, source + c, sizeof(float));
            std::memcpy(to + channels / 2, source + channels - 1, sizeof(Bfloat16));
          }
        });
  }

  HWY_INLINE Runs runs_of(const Phase& phase) const {
    const int64_t pitch = p_.strips.pitch, row = phase.rows.step * p_.strips.columns * pitch;
    Runs runs;
    if (pitch == p_.depth() && (phase.columns.step == 1 || phase.columns.count == 1)) {
      runs.length = phase.columns.count * pitch;
      runs.next_row = row - runs.length;
    } else {
      const int64_t step = phase.columns.step * pitch;
      runs.length = p_.depth(), runs.per_row = phase.columns.count;
      runs.next_run = step - runs.length;
      runs.next_row = row - (phase.columns.count - 1) * step - runs.length;
    }
    return runs;
  }

  // body(first result of a row of the strip, its number of pixels, source pixel it begins with)
  template <class Body> HWY_INLINE void ForRows(const Phase& phase, int64_t u, int64_t panel, const Body& body) const {
    const Strips& strips = p_.strips;
    const int64_t step = p_.phase_step(), pixel = p_.result_channels();
    const int64_t columns = ceil_div(p_.result_width() - phase.column, step);
    const int64_t first = strip(u) * strips.height;
    Result* image_result = call_.result.as<Result>() + image(u) * p_.result_height() * p_.result_width() * pixel +
                           group_ * p_.columns() + panel * kWidth;
    const float* source = memory(u) + ((phase.rows.offset - strips.first_row) * strips.columns + phase.columns.offset -
                                          strips.first_column) *
                                          strips.pitch;
    for (int64_t t = first; t < first + strips.height_of(strip(u)); ++t) {
      const int64_t row = t * step + phase.row;
      if (row >= p_.result_height() || columns <= 0) return;
      body(image_result + (row * p_.result_width() + phase.column) * pixel, columns,
          source + (t - first) * strips.source_step * strips.columns * strips.pitch);
    }
  }

  HWY_INLINE void multiply(const Phase& phase, const Runs& runs, int64_t u, int64_t panel, int64_t begin, int64_t depth,
      const float* packed, bool last) const {
    const int64_t width = std::min<int64_t>(kWidth, p_.columns() - panel * kWidth);
    const int64_t ldc = p_.phase_step() * p_.result_channels(), stride = p_.source_step() * p_.strips.pitch;
    const bool narrow = width <= kLanes, whole = width == (narrow ? kLanes : kWidth), accumulate = begin > 0;
    const auto& tiles = narrow ? kRunTiles<P, 1> : kRunTiles<P, 2>;
    const int64_t filter = group_ * p_.columns() + panel * kWidth;
    EpilogueInTwo epilogue(last ? call_.epilogue : ConvolutionEpilogue{});
    const bool in_tile = whole && !epilogue.first.scale && std::is_same_v<Result, float>;
    if (!in_tile && last) epilogue.first = {}, epilogue.last = call_.epilogue;
    const float* bias = epilogue.first.bias ? epilogue.first.bias + filter : nullptr;
    const bool relu = epilogue.first.activation == GemmActivation::kRelu;
    ForRows(phase, u, panel, [&](Result* result, int64_t pixels, const float* source) LINNET_LAMBDA {
      const Deal deal{pixels, ceil_div(pixels, kRows)};
      for (int64_t t = 0; t < deal.parts(); ++t) {
        const int rows = static_cast<int>(deal.size(t));
        const float* a = source + deal.begin(t) * stride;
        Result* first = result + deal.begin(t) * ldc;
        const int64_t offset = first - call_.result.as<Result>();
        const auto compute = [&](float* c, int64_t c_stride, bool add) LINNET_LAMBDA {
          tiles[rows](runs, begin, depth, a, stride, packed, c, c_stride, {add ? c : nullptr, bias, relu});
        };
        if constexpr (std::is_same_v<Result, float>) {
          ForColumns(rows, width, whole, first, ldc, accumulate, compute);
          if (epilogue.last.any()) ApplyEpilogue(epilogue.last, filter, width, rows, first, ldc, offset);
        } else {
          HWY_ALIGN float sums[kRows * kWidth];
          compute(sums, int64_t{kWidth}, false);
          for (int64_t i = 0; i < rows; ++i) round(sums + i * kWidth, filter, width, first + i * ldc, offset + i * ldc);
        }
      }
    });
  }

  // Rounds a pixel of `width` filters from number `filter` on, `offset` elements into the result.
  HWY_INLINE void round(const float* sums, int64_t filter, int64_t width, Result* out, int64_t offset) const {
    const float* residual = call_.epilogue.residual ? call_.epilogue.residual + offset : nullptr;
    ForRow(width, [&](const auto& at) LINNET_LAMBDA {
      at.store(WithEpilogue(call_.epilogue, at.load(sums), at, filter, residual), out);
    });
    if (call_.epilogue.activation > GemmActivation::kRelu)
      tile::ActivateRows(call_.epilogue.activation, 1, width, out, 0);
  }

  HWY_INLINE void zero(const Phase& phase, int64_t u, int64_t panel) const {
    const int64_t width = std::min<int64_t>(kWidth, p_.columns() - panel * kWidth);
    const int64_t ldc = p_.phase_step() * p_.result_channels();
    ForRows(phase, u, panel, [&](Result* result, int64_t pixels, const float*) LINNET_LAMBDA {
      for (int64_t j = 0; j < pixels; ++j) std::fill_n(result + j * ldc, width, Result(0.0f));
    });
  }

  const TapCall& call_;
  const TapProblem& p_;
  const int64_t group_, unit_, units_, panel_, panel_end_;
  float* const scratch_;
};

template <class P> void pack_all_weights(const PackCall& call, ThreadPool& pool) {
  const int64_t panels = ceil_div(call.problem.columns(), kWidth);
  pool.run(
      call.problem.s.groups * panels, [&](int64_t task, int) { PackWeights<P>(call, task / panels, task % panels); });
}

template <class P, class Result> void run_taps(const TapCall& call, ThreadPool& pool) {
  const TapProblem& p = call.problem;
  const int64_t panels = ceil_div(p.columns(), kWidth), groups = p.s.groups;
  const int64_t blocks = ceil_div(p.units, p.task_units);
  const int64_t parts = std::clamp<int64_t>(4 * pool.size() / (groups * blocks), 1, panels);
  const Deal deal{panels, parts};
  pool.run(groups * blocks * parts, [&](int64_t task, int worker) {
    const int64_t part = task % parts, unit = task / parts % blocks * p.task_units, group = task / parts / blocks;
    TapTask<P, Result>(call, group, unit, std::min(p.task_units, p.units - unit), deal.begin(part),
        deal.begin(part + 1), call.scratch + worker * p.scratch_floats())
        .run();
  });
}

// The weight gradient: every filter element is a sum over all pixels. Images are dealt to partial sums by their sizes,
// so that the bits do not depend on the threads, and the partial sums are added in order.
//
// The policy P (gemm_tile-inl.h) says what is multiplied. In bf16 a step of the sum is a pair of neighboring results of
// a row. The strip then holds pairs, too: of each pixel and the pixel that the next result meets under the same tap.

// Runs of x contiguous in a strip and in the filter: whole rows of a filter, or a tap's channels.
struct FilterRuns {
  explicit FilterRuns(const WeightProblem& p)
      : joined(p.strips.pitch == p.s.group_channels() && p.s.dilation == 1), count(joined ? p.s.rows : p.s.taps()),
        length((joined ? p.s.columns : 1) * p.s.group_channels()) {}
  int64_t offset(const WeightProblem& p, int64_t i) const {
    const int64_t row = joined ? i : i / p.s.columns, column = joined ? 0 : i % p.s.columns;
    return (row * p.strips.columns + column) * p.s.dilation * p.strips.pitch;
  }
  // Panels of vectors of a run: of its elements, or of filters.
  int64_t panels(const WeightProblem& p) const {
    return ceil_div(p.filters_are_lanes() ? p.s.filters : length, int64_t{kWidth});
  }
  bool joined;
  int64_t count, length;
};

// Copies pairs of whole pixels from a window of a bf16 image: in each row `columns` pairs, whose first pixels are
// `step` columns apart, from `column` on, and whose second pixels are `apart` columns further. Others are zero.
HWY_INLINE void CopyPairs(
    const StripSource<Bfloat16>& from, const Window& window, int64_t step, int64_t apart, int64_t pitch, float* out) {
  const auto& [row, rows, column, columns] = window;
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

template <class P> class WeightTask {
 public:
  HWY_INLINE WeightTask(const WeightCall& call, int64_t group, int64_t partial, float* scratch)
      : call_(call), p_(call.problem), sums_(p_.has_sums() ? call.sums : call.dweight), group_(group),
        partial_(partial), scratch_(scratch) {}

  // Sums columns [begin, end) of all runs' panels, counted from the first run's first panel.
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
        if (p_.filters_are_lanes())
          multiply_turned(slopes, pixels_of(slopes, unit, count), runs, run, column, accumulate);
        else
          multiply(slopes, pixels_of(slopes, unit, count), scratch_ + runs.offset(p_, run) + column,
              std::min(runs.length - column, int64_t{kWidth}), run * runs.length + column, accumulate);
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
    const Window window = strips.window(strip(unit));
    const int64_t first = image(unit) * s.height * s.width * s.channels + group_ * s.group_channels();
    if constexpr (P::kPair == 2)
      CopyPairs(
          {call_.x.bf16() + first, s.height, s.width, s.channels, s.channels}, window, 1, s.stride, strips.pitch, out);
    else
      CopyStrip({call_.x.f32() + first, s.height, s.width, s.channels, s.group_channels()}, window, strips.pitch, out);
  }

  // dy of the strips, copied if its pixels are a large power of two apart.
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
        const Bfloat16* dy = call_.dy.bf16() + first(unit + u);
        CopyPairs(
            {dy, rows, s.out_width, s.filters, s.filters}, {0, rows, 0, p_.row_steps()}, 2, 1, p_.slope_pitch(), to);
      } else {
        const float* dy = call_.dy.f32() + first(unit + u);
        CopyStrip(
            {dy, rows, s.out_width, s.filters, s.group_filters()}, {0, rows, 0, s.out_width}, p_.slope_pitch(), to);
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
      tiles[deal.size(t)](
          turned, x + deal.begin(t), slopes.first + column, sums + deal.begin(t) * s.filters, s.filters, accumulate);
  }

  const WeightCall& call_;
  const WeightProblem& p_;
  float* const sums_;
  const int64_t group_, partial_;
  float* const scratch_;
};

template <class P> void run_weights(const WeightCall& call, ThreadPool& pool) {
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
