// How a convolution is cut into blocks, by the sizes alone, the same for every instruction set. The forward pass and
// the input gradient are one kind of problem: a result pixel is a sum of source * weight over the taps of a filter and
// the channels. Along one axis result t meets, under tap a, the source at t * source_step + Taps::offset + a *
// Taps::step. The input gradient of a convolution with stride s is s * s such problems, one for each phase (row modulo
// s, column modulo s) of the result, each with all or some of the taps.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include "engine/kernels/conv/convolution.h"
#include "engine/kernels/gemm/gemm_blocking.h"

namespace linnet::convolution_layout {
using gemm_blocking::kMaxPanel;

constexpr int64_t kDepth = 768;              // products that are summed in registers before C is stored
constexpr int64_t kStripFloats = 1 << 16;    // of one strip: 256 KB of the L2 cache
constexpr int64_t kScratchFloats = 1 << 17;  // of the strips of one task
constexpr int64_t kTaskPixels = 256;         // result pixels that share a pass over the packed weights
constexpr int64_t kPartialFloats = 1 << 19;  // of the partial weight gradients together, unless there is only one
constexpr int64_t kMaxPartials = 32;

// Depthwise: channels of a strip. A result's rows of pixels then stay in L1.
constexpr int64_t kChannelBlock = 128;
inline int64_t channel_blocks(const ConvolutionSizes& s) { return ceil_div(s.channels, kChannelBlock); }
inline bool is_depthwise(const ConvolutionSizes& s) { return convolution_method(s) == ConvolutionMethod::kDepthwise; }
// Groups of few channels, in the forward pass: results are elementwise sums, like depthwise ones. A strip holds a
// group's channels once for each of its filters: [pixels, channels of a group, filters of a block].
constexpr int64_t kFilterBlock = 32;
inline bool is_grouped(const ConvolutionSizes& s) {
  constexpr int64_t kMostChannels = 4, kMostFilters = 16;
  return s.groups > 1 && !is_depthwise(s) && s.group_channels() <= kMostChannels && s.group_filters() <= kMostFilters;
}
inline int64_t strip_channels(const ConvolutionSizes& s, int64_t otherwise) {
  return is_depthwise(s) ? std::min(s.channels, kChannelBlock) : otherwise;
}

// The taps of one axis that a phase meets, by source position.
struct Taps {
  int64_t count = 0;
  int64_t offset = 0;       // source position of result 0 under tap 0; below 0: in the padding
  int64_t step = 1;         // source positions from one tap to the next
  int64_t filter = 0;       // position in the filter of tap 0
  int64_t filter_step = 1;  // and from one tap to the next
  int64_t last() const { return offset + (count - 1) * step; }
};

inline Taps forward_taps(const ConvolutionSizes& s, int64_t size) { return {size, -s.padding, s.dilation, 0, 1}; }

// Result p of a phase is a multiple of the stride plus `phase`. It meets taps r with (phase + padding - r * dilation)
// divisible by the stride, the largest r at the first source position.
inline Taps gradient_taps(const ConvolutionSizes& s, int64_t size, int64_t phase) {
  const int64_t period = s.stride / std::gcd(s.stride, s.dilation);
  for (int64_t first = 0; first < std::min(period, size); ++first) {
    if ((phase + s.padding - first * s.dilation) % s.stride != 0) continue;
    const int64_t count = (size - 1 - first) / period + 1, last = first + (count - 1) * period;
    return {count, (phase + s.padding - last * s.dilation) / s.stride, period * s.dilation / s.stride, last, -period};
  }
  return {};
}

// The part of a source axis that some results need.
struct Reach {
  int64_t low = 0, high = 0;  // source positions that result 0 meets, over all phases: [low, high]
  void add(const Taps& taps) {
    if (taps.count == 0) return;
    low = any ? std::min(low, taps.offset) : taps.offset;
    high = any ? std::max(high, taps.last()) : taps.last();
    any = true;
  }
  bool any = false;
};

// Floats between pixels. A large power of two would map a tile's rows to a few cache sets.
constexpr int64_t pixel_pitch(int64_t channels, bool depthwise) {
  return channels % (depthwise ? 64 : 128) == 0 ? channels + 16 : channels;
}

// Rows and columns of a source, or of the padding around it.
struct Window {
  int64_t row, rows, column, columns;
};

// A strip: the source rows that some rows of results need, copied with padding.
struct Strips {
  Strips(int64_t grid_rows, int64_t grid_columns, int64_t source_step, const Reach& row_reach,
      const Reach& column_reach, int64_t channels, bool depthwise)
      : first_row(row_reach.low), first_column(column_reach.low),
        columns((grid_columns - 1) * source_step + column_reach.high - column_reach.low + 1),
        pitch(pixel_pitch(channels, depthwise)), source_step(source_step), reach(row_reach.high - row_reach.low + 1),
        grid_rows(grid_rows) {
    const int64_t row_floats = columns * pitch;
    const int64_t fitting = (kStripFloats / row_floats - reach) / source_step + 1;
    count = ceil_div(grid_rows, std::clamp<int64_t>(fitting, 1, grid_rows));
    height = ceil_div(grid_rows, count);
    count = ceil_div(grid_rows, height);
    floats = round_up(source_rows(height) * row_floats + kMaxPanel, 16);  // a vector may be read past the last pixel
  }
  int64_t source_rows(int64_t result_rows) const { return (result_rows - 1) * source_step + reach; }
  int64_t height_of(int64_t strip) const { return std::min(height, grid_rows - strip * height); }
  Window window(int64_t strip) const {  // what it copies
    return {first_row + strip * height * source_step, source_rows(height_of(strip)), first_column, columns};
  }

  int64_t first_row, first_column;  // source position that the first pixel of strip 0 has
  int64_t columns, pitch;           // pixels of a row; floats from pixel to pixel
  int64_t source_step, reach, grid_rows;
  int64_t count = 0, height = 0;  // strips of an image, result rows of each (the last may have fewer)
  int64_t floats = 0;             // of memory for one strip
};

// What the forward pass and the input gradient read and write.
struct Sides {
  ConvolutionSizes s;
  bool gradient;
  // The source: the images, or dy.
  int64_t source_height() const { return gradient ? s.out_height : s.height; }
  int64_t source_width() const { return gradient ? s.out_width : s.width; }
  int64_t source_channels() const { return gradient ? s.filters : s.channels; }
  int64_t depth() const { return gradient ? s.group_filters() : s.group_channels(); }  // channels of a group
  // The result: y, or the images' gradient.
  int64_t result_height() const { return gradient ? s.height : s.out_height; }
  int64_t result_width() const { return gradient ? s.width : s.out_width; }
  int64_t result_channels() const { return gradient ? s.channels : s.filters; }
  int64_t columns() const { return gradient ? s.group_channels() : s.group_filters(); }  // results of a group
};

class TapProblem : public Sides {
 public:
  // `half_pair`: in bf16, whether the last pair of a pixel's channels lacks its second. `grouped`: see is_grouped().
  TapProblem(const ConvolutionSizes& sizes, bool gradient, bool half_pair = false, bool grouped = false)
      : Sides{sizes, gradient}, half_pair(half_pair), grouped(grouped), strips(make_strips()) {
    units = s.images * strips.count;
    const int64_t pixels = strips.height * grid_columns();
    task_units = std::clamp<int64_t>(kTaskPixels / pixels, 1, std::max<int64_t>(1, kScratchFloats / strips.floats));
    task_units = std::min(task_units, units);
  }

  int64_t source_step() const { return gradient ? 1 : s.stride; }
  int64_t phase_step() const { return gradient ? s.stride : 1; }
  int64_t grid_rows() const { return ceil_div(result_height(), phase_step()); }
  int64_t grid_columns() const { return ceil_div(result_width(), phase_step()); }

  Taps row_taps(int64_t phase) const { return gradient ? gradient_taps(s, s.rows, phase) : forward_taps(s, s.rows); }
  Taps column_taps(int64_t phase) const {
    return gradient ? gradient_taps(s, s.columns, phase) : forward_taps(s, s.columns);
  }

  // The packed weights of a group: for every phase, panels of up to kMaxPanel columns, one step deep per tap.
  int64_t packed_floats() const { return s.taps() * depth() * round_up(columns(), kMaxPanel); }
  int64_t shared_floats() const {
    return round_up(is_elementwise() ? s.taps() * s.group_channels() * s.filters : s.groups * packed_floats(), 16);
  }
  int64_t scratch_floats() const {  // of a thread; depthwise with two pixels of a block's channels
    return task_units * strips.floats + (is_depthwise(s) ? 2 * kChannelBlock : 0);
  }
  bool is_elementwise() const { return grouped || is_depthwise(s); }
  // Whether every sum is complete before it is stored.
  bool sums_are_whole() const { return s.taps() * depth() <= kDepth; }

  bool half_pair, grouped;
  Strips strips;
  int64_t units, task_units;  // strips of all images; of a task

 private:
  Strips make_strips() const {
    Reach rows, columns;
    for (int64_t phase = 0; phase < phase_step(); ++phase) rows.add(row_taps(phase)), columns.add(column_taps(phase));
    const int64_t channels =
        grouped ? s.group_channels() * std::min(s.filters, kFilterBlock) : strip_channels(s, depth());
    return {grid_rows(), grid_columns(), source_step(), rows, columns, channels, is_elementwise()};
  }
};

// Winograd's minimal filtering F(t x t, 3 x 3) computes t x t results from (t + 2)^2 products per channel.
inline int64_t winograd_tiles(const ConvolutionSizes& s, int64_t t) {  // of an image
  return ceil_div(s.out_height, t) * ceil_div(s.out_width, t);
}
constexpr int64_t winograd_spots(int64_t t) { return (t + 2) * (t + 2); }

// The tile size t of the forward pass and the input gradient: 2 or 4, or 0 if tiles do not pay (bench/NOTES.md). pair:
// channels in a packed element, 2 in bf16, whose rounding errors exclude larger tiles.
inline int64_t winograd_tile(const ConvolutionSizes& s, int64_t pair = 1) {
  constexpr int64_t kLanes = 16;  // of the longest vectors
  // Above, the transformed filters of large tiles no longer fit L2.
  constexpr int64_t kMostWeights = 128 * 128;
  if (s.rows != 3 || s.columns != 3 || s.stride != 1 || s.dilation != 1 || s.groups != 1) return 0;
  if (s.channels % kLanes != 0 || s.filters % kLanes != 0) return 0;
  // From one vector of channels to one, small tiles' transformations cost what their products gain.
  const bool one_vector = s.channels + s.filters == 2 * kLanes;
  // Products for each pair of channels. Half of a large tile may lie outside of a small image.
  const int64_t direct = 9 * s.out_height * s.out_width, small = winograd_spots(2) * winograd_tiles(s, 2);
  const int64_t large = winograd_spots(4) * winograd_tiles(s, 4);
  const bool large_pays = one_vector ? 2 * large <= direct : 8 * large <= 7 * small;
  if (pair == 1 && s.channels * s.filters <= kMostWeights && large_pays) return 4;
  return one_vector ? 0 : 2;
}

// The forward pass or the input gradient by Winograd's minimal filtering. Packed elements are floats or bf16 pairs of
// neighboring channels.
class WinogradProblem : public Sides {
 public:
  static constexpr int64_t kMostLanes = 16;  // of a vector of any instruction set: channels are a multiple of it
  static constexpr int64_t kPackedChannels = 64;
  // At most, transformed sources of a task: 512 KB, which L2 holds beside a panel of filters.
  static constexpr int64_t kMostFloats = 1 << 17;
  static constexpr int64_t kFewTiles = 12, kManyTiles = 28 * 32;

  // `pair`: channels in a packed element, 2 in bf16.
  WinogradProblem(const ConvolutionSizes& sizes, bool gradient, int64_t pair = 1)
      : Sides{sizes, gradient}, pair(pair), tile(winograd_tile(sizes, pair)) {}

  // The first source position of result 0; below 0: padding.
  int64_t origin() const { return gradient ? s.padding - 2 : -s.padding; }

  int64_t spots() const { return winograd_spots(tile); }
  int64_t tile_rows() const { return ceil_div(result_height(), tile); }
  int64_t tile_columns() const { return ceil_div(result_width(), tile); }
  int64_t tiles() const { return s.images * tile_rows() * tile_columns(); }
  int64_t steps() const { return depth() / pair; }                             // of the sum over channels
  int64_t pitch() const { return pixel_pitch(round_up(steps(), 16), false); }  // packed elements from tile to tile
  // About a multiple of the rows of every register tile. With few channels filters are read fast, and sources of few
  // tiles stay in L1. Few tiles are divided among many threads.
  int64_t task_tiles() const {
    if (tile == 4 && pitch() <= 16) return kFewTiles;
    const bool fits = spots() * 28 * pitch() <= kMostFloats;
    return fits && (tile == 2 || tiles() > kManyTiles) ? 28 : 14;
  }

  int64_t packed_floats() const { return spots() * steps() * round_up(columns(), kMaxPanel); }
  int64_t shared_floats() const { return packed_floats(); }
  int64_t pack_floats() const { return spots() * kMaxPanel * kPackedChannels; }  // of a thread, while it packs
  int64_t scratch_floats() const {                                               // of a thread
    return std::max(pack_floats(), spots() * task_tiles() * (pitch() + kMaxPanel) + pitch());
  }

  int64_t pair, tile;
};

// The weight gradient: partial sums over images, divided by the sizes.
class WeightProblem {
 public:
  // `pair`: results of a row in a step of the sum; 2 in bf16, for which source and dy are copied as pairs.
  explicit WeightProblem(const ConvolutionSizes& sizes, int64_t pair = 1)
      : s(sizes), pair(pair), strips(make_strips()) {
    units = s.images * strips.count;
    elements = s.filters * s.taps() * s.group_channels();
    const int64_t most = std::clamp<int64_t>(kPartialFloats / std::max<int64_t>(1, elements), 1, kMaxPartials);
    partials = std::clamp<int64_t>(units, 1, most);
    // Strips of many pixels hide the cost of storing their sums.
    if (!is_depthwise(s) && strips.count == 1 && strips.height * row_steps() < kFewSteps)
      task_units = std::clamp<int64_t>(kTaskFloats / (strips.floats + slope_floats()), 1, ceil_div(units, partials));
  }
  bool copies_dy() const { return pair > 1 || slope_pitch() != s.filters; }
  int64_t row_steps() const { return ceil_div(s.out_width, pair); }
  int64_t slope_pitch() const { return s.filters % 256 == 0 ? s.group_filters() + 16 : s.filters; }
  int64_t slope_floats() const { return copies_dy() ? round_up(strips.height * row_steps() * slope_pitch(), 16) : 0; }
  int64_t scratch_floats() const {  // of a thread; depthwise with two pixels of a block's channels
    return task_units * (strips.floats + slope_floats()) + (is_depthwise(s) ? 2 * kChannelBlock : 0);
  }
  bool has_sums() const { return partials > 1 || is_depthwise(s) || filters_are_lanes(); }
  int64_t shared_floats() const { return has_sums() ? round_up(partials * elements, 16) : 0; }
  // Few channels would leave lanes empty. The sums then are [R, S, C, O], and are transposed at the end.
  bool filters_are_lanes() const {
    constexpr int64_t kLanes = 16;  // of the longest vectors
    return s.groups == 1 && s.channels < kLanes && s.filters % kLanes == 0 && s.dilation == 1;
  }

  ConvolutionSizes s;
  int64_t pair;
  Strips strips;
  int64_t units = 0, elements = 0, partials = 0;
  int64_t task_units = 1;  // strips whose sum is stored once; more than one where a strip is an image

 private:
  static constexpr int64_t kFewSteps = 256, kTaskFloats = 1 << 19;

  Strips make_strips() const {
    Reach rows, columns;
    rows.add(forward_taps(s, s.rows)), columns.add(forward_taps(s, s.columns));
    return {s.out_height, s.out_width, s.stride, rows, columns, strip_channels(s, s.group_channels()), is_depthwise(s)};
  }
};

// As winograd_tile(), for the weight gradient.
inline int64_t winograd_weight_tile(const ConvolutionSizes& s, int64_t pair = 1) {
  // Above, the sums over spots no longer fit L2.
  constexpr int64_t kMostWeights = 256 * 256, kMostWeightsOfLarge = 64 * 64;
  constexpr int64_t kLeastTiles = 64;  // below, there is more to transform back than to sum
  const int64_t weights = s.channels * s.filters;
  if (winograd_tile(s, pair) == 4 && weights <= kMostWeightsOfLarge && s.images * winograd_tiles(s, 4) >= kLeastTiles)
    return 4;
  return winograd_tile(s, 2) == 2 && weights <= kMostWeights && s.images * winograd_tiles(s, 2) >= kLeastTiles ? 2 : 0;
}

// The weight gradient by Winograd's minimal filtering: partial sums over tiles of results, divided by the sizes. In
// bf16 a step of the sum is a pair of tiles.
class WinogradWeightProblem {
 public:
  explicit WinogradWeightProblem(const ConvolutionSizes& sizes, int64_t pair = 1)
      : s(sizes), pair(pair), tile(winograd_weight_tile(sizes, pair)) {
    constexpr int64_t kMostFloats = WinogradProblem::kMostFloats;
    while (task_steps > 14 && spots() * task_steps * (source_pitch() + slope_pitch()) > kMostFloats) task_steps /= 2;
    blocks = ceil_div(tiles(), task_steps * pair);
    partials = std::clamp<int64_t>(blocks, 1, std::clamp<int64_t>(kPartialFloats / elements(), 1, kMaxPartials));
  }

  int64_t spots() const { return winograd_spots(tile); }
  int64_t tile_rows() const { return ceil_div(s.out_height, tile); }
  int64_t tile_columns() const { return ceil_div(s.out_width, tile); }
  int64_t tiles() const { return s.images * tile_rows() * tile_columns(); }
  int64_t source_pitch() const { return pixel_pitch(s.channels, false); }
  int64_t slope_pitch() const { return pixel_pitch(s.filters, false); }
  int64_t elements() const { return spots() * s.filters * s.channels; }  // of a partial sum
  int64_t shared_floats() const { return partials * elements(); }
  int64_t scratch_floats() const {  // of a thread
    return (spots() * task_steps + 1) * (source_pitch() + slope_pitch());
  }

  ConvolutionSizes s;
  int64_t pair, tile;
  int64_t task_steps = 112;  // steps of the sum whose tiles are transformed together
  int64_t blocks = 0, partials = 0;
};
}  // namespace linnet::convolution_layout

// The kernels that convolution.cpp chooses among. Workspaces: convolution_layout.h's shared floats, then scratch floats
// for each thread.
namespace linnet {
// The forward pass or the input gradient. With pairs sources are bf16 and results may be.
template <class Problem> struct ConvolveCall {
  const Problem& problem;
  StoredFloats source;
  const float* packed;  // the filters, of every group
  MutableStoredFloats result;
  float* scratch;  // problem.scratch_floats() for each thread
  const ConvolutionEpilogue& epilogue;
};
using TapCall = ConvolveCall<convolution_layout::TapProblem>;
using WinogradCall = ConvolveCall<convolution_layout::WinogradProblem>;

template <class Problem> struct PackFiltersCall {
  const Problem& problem;
  const float* weight;
  float *packed, *scratch;  // scratch: problem.pack_floats() for each thread, of Winograd's problems
};
using PackCall = PackFiltersCall<convolution_layout::TapProblem>;
using WinogradPackCall = PackFiltersCall<convolution_layout::WinogradProblem>;

template <class Problem> struct WeightGradientCall {
  const Problem& problem;
  StoredFloats x, dy;  // bf16 where the problem has pairs
  float *dweight, *sums;
  float* scratch;  // problem.scratch_floats() for each thread
};
// sums, if problem.has_sums(): [partials, O, R, S, C / groups], or [partials, R, S, C, O] if filters are lanes.
using WeightCall = WeightGradientCall<convolution_layout::WeightProblem>;
using WinogradWeightCall = WeightGradientCall<convolution_layout::WinogradWeightProblem>;  // [partials, spots, O, C]

// Of one instruction set, for products of floats or bf16 pairs.
struct ConvolutionKernels {
  void (*pack_taps)(const PackCall&, ThreadPool&);
  void (*taps)(const TapCall&, ThreadPool&);
  void (*weights)(const WeightCall&, ThreadPool&);
  void (*pack_winograd)(const WinogradPackCall&, ThreadPool&);
  void (*winograd)(const WinogradCall&, ThreadPool&);
  void (*winograd_weights)(const WinogradWeightCall&, ThreadPool&);
};
const ConvolutionKernels* fp32_convolution_kernels();
const ConvolutionKernels* bf16_convolution_kernels();  // null where the processor has none

// Depthwise and grouped problems, in fp32. Filters are packed as [R * S * channels of a group, filters].
void pack_depthwise(const PackCall& call, ThreadPool& pool);
void depthwise_taps(const TapCall& call, ThreadPool& pool);
void depthwise_weights(const WeightCall& call, ThreadPool& pool);

// The epilogue alone, of complete results: y [pixels, filters].
void convolution_epilogue(
    const ConvolutionEpilogue& epilogue, int64_t pixels, int64_t filters, float* y, ThreadPool& pool);
}  // namespace linnet
