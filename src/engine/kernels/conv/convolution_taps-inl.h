// The forward pass and the input gradient as products whose left operand is never stored: the register tile reads the
// pixels that a result needs from a strip of the image. The weights are packed once, for all threads.
//
// A policy P (gemm_pack-inl.h) says what is multiplied. In bf16 a packed element is a pair of neighboring channels of
// the source, which lie side by side in memory. So an image in bf16 is an image of pairs with half as many channels,
// and `problem` is the one of that image.
//
// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_CONVOLUTION_TAPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_CONVOLUTION_TAPS_INL_H_
#undef LINNET_KERNELS_CONVOLUTION_TAPS_INL_H_
#else
#define LINNET_KERNELS_CONVOLUTION_TAPS_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <type_traits>
#include "base/thread_pool.h"
#include "engine/kernels/conv/convolution-inl.h"
#include "engine/kernels/conv/convolution_calls.h"
#include "engine/kernels/gemm/gemm_pack-inl.h"
#include "engine/kernels/gemm/gemm_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::convolution {

using namespace convolution_layout;

// One phase of the results, and where its packed weights lie in those of a group.
struct Phase {
  int64_t row, column;  // phase of rows and columns
  Taps rows, columns;
  int64_t packed;
  int64_t taps() const { return rows.count * columns.count; }
};

// visit(phase) for all of them.
template <class Visit>
HWY_INLINE void ForPhases(const TapProblem& p, const Visit& visit) {
  const int64_t panels = ceil_div(p.columns(), kWidth);
  int64_t packed = 0;
  for (int64_t row = 0; row < p.phase_step(); ++row)
    for (int64_t column = 0; column < p.phase_step(); ++column) {
      const Phase phase{row, column, p.row_taps(row), p.column_taps(column), packed};
      visit(phase);
      packed += phase.taps() * p.depth() * panels * kWidth;
    }
}

// Panel `panel` of a group's weights: of every phase, [taps * depth, kWidth].
template <class P>
void PackWeights(const PackCall& call, int64_t group, int64_t panel) {
  const TapProblem& p = call.problem;
  const ConvolutionSizes& s = p.s;
  // Values, of which P::kPair make a packed element.
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
// Bfloat16 where no sum is cut into blocks (TapProblem::sums_are_whole()).
template <class P, class Result>
class TapTask {
 public:
  HWY_INLINE TapTask(const TapCall& call, int64_t group, int64_t unit, int64_t units, int64_t panel, int64_t panel_end,
                     float* scratch)
      : call_(call),
        p_(call.problem),
        group_(group),
        unit_(unit),
        units_(units),
        panel_(panel),
        panel_end_(panel_end),
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
            if (depth == 0) {
              zero(phase, u, panel);
            } else {
              multiply(phase, runs, u, panel, blocks.begin(block), blocks.size(block),
                       packed + (panel * depth + blocks.begin(block)) * kWidth, block + 1 == blocks.parts());
            }
          }
    });
  }

 private:
  HWY_INLINE int64_t image(int64_t u) const { return (unit_ + u) / p_.strips.count; }
  HWY_INLINE int64_t strip(int64_t u) const { return (unit_ + u) % p_.strips.count; }
  HWY_INLINE float* memory(int64_t u) const { return scratch_ + u * p_.strips.floats; }

  HWY_INLINE void copy(int64_t u) const {
    const Strips& strips = p_.strips;
    if (p_.half_pair) return copy_half_pairs(u);
    const int64_t pixels = p_.source_height() * p_.source_width();
    const StripSource from{call_.source.f32() + image(u) * pixels * p_.source_channels() + group_ * p_.depth(),
                           p_.source_height(), p_.source_width(), p_.source_channels(), p_.depth()};
    CopyStrip(from, strips.first_row + strip(u) * strips.height * strips.source_step,
              strips.source_rows(strips.height_of(strip(u))), strips.first_column, strips.columns, strips.pitch,
              memory(u));
  }

  // Of pixels with an odd number of channels, which are filled up by zero.
  HWY_INLINE void copy_half_pairs(int64_t u) const {
    const Strips& strips = p_.strips;
    const int64_t height = p_.source_height(), width = p_.source_width(), channels = 2 * p_.depth() - 1;
    const auto* const source = call_.source.bf16() + image(u) * height * width * channels;
    const int64_t first = strips.first_row + strip(u) * strips.height * strips.source_step;
    const int64_t begin = std::clamp<int64_t>(-strips.first_column, 0, strips.columns);
    const int64_t end = std::clamp<int64_t>(width - strips.first_column, begin, strips.columns);
    float* out = memory(u);
    for (int64_t i = first; i < first + strips.source_rows(strips.height_of(strip(u))); ++i) {
      std::fill_n(out, strips.columns * strips.pitch, 0.0f);
      float* to = out + begin * strips.pitch;
      out += strips.columns * strips.pitch;
      if (i < 0 || i >= height) continue;
      const Bfloat16* from = source + (i * width + strips.first_column + begin) * channels;
      // Constant sizes, because a pixel has few channels.
      for (int64_t j = begin; j < end; ++j, from += channels, to += strips.pitch) {
        for (int64_t c = 0; c + 1 < channels; c += 2) std::memcpy(to + c / 2, from + c, sizeof(float));
        std::memcpy(to + channels / 2, from + channels - 1, sizeof(Bfloat16));
      }
    }
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
  template <class Body>
  HWY_INLINE void ForRows(const Phase& phase, int64_t u, int64_t panel, const Body& body) const {
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
          tiles[static_cast<size_t>(rows)](runs, begin, depth, a, stride, packed, c, c_stride,
                                           {add ? c : nullptr, bias, relu});
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

  // A pixel of `width` filters from number `filter` on, `offset` elements into the result.
  HWY_INLINE void round(const float* sums, int64_t filter, int64_t width, Result* out, int64_t offset) const {
    const float* residual = call_.epilogue.residual ? call_.epilogue.residual + offset : nullptr;
    ForRow(width, [&](const auto& at) LINNET_LAMBDA {
      at.store(WithEpilogue(call_.epilogue, at.load(sums), at, filter, residual), out);
    });
    if (call_.epilogue.activation > GemmActivation::kRelu)
      tile::ActivateRows(call_.epilogue.activation, 1, width, out, 0);
  }

  // A phase that no tap meets.
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

template <class P>
void pack_all_weights(const PackCall& call, ThreadPool& pool) {
  const int64_t panels = ceil_div(call.problem.columns(), kWidth);
  pool.run(call.problem.s.groups * panels,
           [&](int64_t task, int) { PackWeights<P>(call, task / panels, task % panels); });
}

template <class P, class Result>
void run_taps(const TapCall& call, ThreadPool& pool) {
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

}  // namespace linnet::HWY_NAMESPACE::convolution
HWY_AFTER_NAMESPACE();

#endif
