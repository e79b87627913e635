// Convolutions with one filter per channel: elementwise products of vectors of channels, over strips of images. Groups
// of few channels are sums of as many such products.
#include "base/thread_pool.h"
#include "engine/kernels/conv/convolution_layout.h"
#include "engine/kernels/gemm/gemm_blocking.h"

#define HWY_TARGET_INCLUDE "engine/kernels/conv/depthwise_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/conv/convolution-inl.h"
#include "engine/kernels/conv/depthwise_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
using namespace convolution;
using namespace convolution_layout;

constexpr int kPixels = tile::kOldest ? 2 : 8;   // results that share the loads of weights
constexpr int kMaxTaps = tile::kOldest ? 2 : 7;  // sums of a filter's row that are kept in registers
// The largest filters that are computed from images in place.
constexpr int64_t kLargestRows = tile::kOldest ? 3 : 7, kLargestPatches = tile::kOldest ? 3 : 5;

// Distances in floats between operands of neighboring taps.
struct TapSteps {
  int64_t rows, columns;  // numbers of taps
  int64_t source_row, source_column;
  int64_t weight_row, weight_column;
  int64_t depth = 1, source_step = 0, weight_step = 0;  // of a group: channels, and from one to the next
};

// `count` consecutive results, for one vector of channels at `at`. finish: maps a sum to what is stored.
template <int kCount, class At, class Finish> HWY_INLINE void DepthwisePixels(const TapSteps& taps, const float* source,
    int64_t stride, const float* weight, float* result, int64_t result_step, const At& at, const Finish& finish) {
  Floats sums[kCount];
#pragma GCC unroll 8
  for (int j = 0; j < kCount; ++j) sums[j] = SetAll(0);
  for (int64_t a = 0; a < taps.rows; ++a)
    for (int64_t b = 0; b < taps.columns; ++b) {
      const float* y = weight + a * taps.weight_row + b * taps.weight_column;
      const float* x = source + a * taps.source_row + b * taps.source_column;
      for (int64_t c = 0; c < taps.depth; ++c, x += taps.source_step, y += taps.weight_step) {
        const Floats w = at.load(y);
#pragma GCC unroll 8
        for (int j = 0; j < kCount; ++j) sums[j] = hn::MulAdd(at.load(x + j * stride), w, sums[j]);
      }
    }
#pragma GCC unroll 8
  for (int j = 0; j < kCount; ++j) at.store(finish(sums[j]), result + j * result_step);
}

template <class At> HWY_INLINE auto FinishOf(const ConvolutionEpilogue& epilogue, int64_t channel, const At& at) {
  return [&epilogue, channel, at](Floats x) LINNET_LAMBDA { return WithEpilogue(epilogue, x, at, channel, nullptr); };
}

// A block of channels, or of a grouped convolution's filters, of one strip.
struct Block {
  int64_t unit, channel, channels;
  Block(int64_t task, int64_t all, int64_t width = kChannelBlock)
      : unit(task / ceil_div(all, width)), channel(task % ceil_div(all, width) * width),
        channels(std::min(width, all - channel)) {}
};

// Channels of a block: fewer if a small image would not occupy all threads.
int64_t block_width(const TapProblem& p, int threads) {
  constexpr int64_t kLeast = 32;
  int64_t width = p.grouped ? kFilterBlock : kChannelBlock;
  while (width > kLeast && p.units * ceil_div(p.s.filters, width) < 2 * threads) width /= 2;
  return width;
}

HWY_INLINE void CopyBlock(const float* images, int64_t height, int64_t width, int64_t channels, const Strips& strips,
    const Block& block, float* out) {
  const int64_t strip = block.unit % strips.count;
  const float* image = images + block.unit / strips.count * height * width * channels + block.channel;
  CopyStrip({image, height, width, channels, block.channels}, strips.window(strip), strips.pitch, out);
}

// The lanes of a vector's channels, from `first` on, that a vector of filters meets.
struct GroupLanes {
  GroupLanes(const ConvolutionSizes& s, int64_t filter) : first(filter / s.group_filters() * s.group_channels()) {
    for (int64_t i = 0; i < kFloatLanes; ++i)
      lane[i] = std::min((filter + i) / s.group_filters() * s.group_channels() - first, int64_t{kFloatLanes} - 1);
    count = std::min<int64_t>(kFloatLanes, s.channels - first);
    fit = lane[kFloatLanes - 1] + s.group_channels() <= kFloatLanes;
  }
  int64_t first, count, lane[kFloatLanes];  // lane: of the first channel of each filter's group
  bool fit;
};

// The strip of a block of filters: for each pixel the channels that the filters in the lanes meet, one after another.
void CopyGroups(const TapCall& call, const Block& block, float* out) {
  const TapProblem& p = call.problem;
  const Strips& strips = p.strips;
  const int64_t strip = block.unit % strips.count, depth = p.s.group_channels(), channels = block.channels;
  const StripSource<float> from{call.source.f32() + block.unit / strips.count * p.s.height * p.s.width * p.s.channels,
      p.s.height, p.s.width, p.s.channels, p.s.channels};
  const auto copy_vector = [&](int64_t v, const float* source, float* to, int64_t n) LINNET_LAMBDA {
    const GroupLanes lanes(p.s, block.channel + v);
    const PartLanes at{lanes.first, lanes.count}, result{v, std::min<int64_t>(kFloatLanes, channels - v)};
    for (int64_t c = 0; c < depth; ++c) {
      int32_t index[kFloatLanes];
      for (int64_t i = 0; i < kFloatLanes; ++i) index[i] = static_cast<int32_t>(lanes.lane[i] + c) % kFloatLanes;
      const auto indices = hn::SetTableIndices(FloatTag(), index);
      const float* x = source;
      float* y = to + c * channels;
      for (int64_t j = 0; j < n; ++j, x += p.s.channels, y += strips.pitch) {
        if (lanes.fit) result.store(hn::TableLookupLanes(at.load(x), indices), y);
        else
          for (int64_t o = v; o < v + result.count; ++o)
            y[o] = x[(block.channel + o) / p.s.group_filters() * depth + c];
      }
    }
  };
  CopyStripBy(
      from, strips.window(strip), strips.pitch, out, [&](const float* source, float* to, int64_t n) LINNET_LAMBDA {
        for (int64_t v = 0; v < channels; v += kFloatLanes) copy_vector(v, source, to, n);
      });
}

void DepthwiseStrip(
    const TapCall& call, const Block& block, int64_t row_phase, int64_t column_phase, const float* strip_memory) {
  const TapProblem& p = call.problem;
  const Strips& strips = p.strips;
  const int64_t channels = p.s.filters, step = p.phase_step(), strip = block.unit % strips.count;
  const int64_t depth = p.s.group_channels();
  const Taps rows = p.row_taps(row_phase), columns = p.column_taps(column_phase);
  const int64_t row_pitch = strips.columns * strips.pitch, stride = p.source_step() * strips.pitch;
  const TapSteps taps{rows.count, columns.count, rows.step * row_pitch, columns.step * strips.pitch,
      rows.filter_step * p.s.columns * depth * channels, columns.filter_step * depth * channels, depth, block.channels,
      channels};
  const float* weight = call.packed + (rows.filter * p.s.columns + columns.filter) * depth * channels + block.channel;
  const EpilogueInTwo epilogue(call.epilogue);
  const float* source = strip_memory + (rows.offset - strips.first_row) * row_pitch +
                        (columns.offset - strips.first_column) * strips.pitch;
  float* image =
      call.result.f32() + block.unit / strips.count * p.result_height() * p.result_width() * channels + block.channel;
  const int64_t width = ceil_div(p.result_width() - column_phase, step), result_step = step * channels;
  const int64_t first = strip * strips.height;
  for (int64_t t = 0; t < strips.height_of(strip); ++t) {
    const int64_t row = (first + t) * step + row_phase;
    if (row >= p.result_height()) return;
    float* result = image + (row * p.result_width() + column_phase) * channels;
    const float* from = source + t * p.source_step() * row_pitch;
    int64_t j = 0;
    const auto visit = [&]<int kCount>() LINNET_LAMBDA {
      for (; j + kCount <= width; j += kCount)
        ForRow(block.channels, [&](const auto& at) LINNET_LAMBDA {
          DepthwisePixels<kCount>(taps, from + j * stride, stride, weight, result + j * result_step, result_step, at,
              FinishOf(epilogue.first, block.channel, at));
        });
    };
    visit.template operator()<kPixels>();
    if constexpr (kPixels > 3) visit.template operator()<3>();
    visit.template operator()<1>();
    if (epilogue.last.any())
      ApplyEpilogue(
          epilogue.last, block.channel, block.channels, width, result, result_step, result - call.result.f32());
  }
}

// Whether a filter is n x n, n odd and up to `largest`, dense but for the stride, with half padding.
bool is_square(const ConvolutionSizes& s, int64_t largest) {
  return s.rows == s.columns && s.rows >= 3 && s.rows % 2 == 1 && s.rows <= largest && s.dilation == 1 &&
         s.padding == s.rows / 2;
}

bool by_rows(const ConvolutionSizes& s) { return is_square(s, kLargestRows) && s.stride == 1; }  // two rows at a time

bool by_patches(const TapProblem& p) {
  const ConvolutionSizes& s = p.s;
  const bool has_memory = 2 * s.channels <= p.scratch_floats();  // for zeros, and results that are not asked for
  return !p.gradient && is_square(s, kLargestPatches) && s.stride == 2 && has_memory;
}

// Whether pixels are a multiple of 2 KB apart, so that a row falls into a few cache sets. Then blocks are copied.
bool copies_blocks(const ConvolutionSizes& s) { return s.channels % 512 == 0; }

// The rows of a block's source, and the first one's number in the image. scratch: memory for its strip.
struct BlockRows {
  ImageRows<const float> rows;
  int64_t first, channel;
};
HWY_INLINE BlockRows rows_of(
    const float* images, const ConvolutionSizes& s, const Strips& strips, const Block& block, float* scratch) {
  const int64_t strip = block.unit % strips.count;
  if (!copies_blocks(s)) {
    const float* image = images + block.unit / strips.count * s.height * s.width * s.channels;
    return {{image, s.height, s.width, s.channels}, 0, block.channel};
  }
  CopyBlock(images, s.height, s.width, s.channels, strips, block, scratch);
  // A row of the strip begins with padding.
  return {
      {scratch + s.padding * strips.pitch, strips.source_rows(strips.height_of(strip)), strips.columns, strips.pitch},
      strip * strips.height - s.padding, 0};
}

// Results of a block. `pixel`: memory for two pixels of the block's channels, for zeros and for unneeded results.
template <int n> void DepthwiseByRows(const TapCall& call, const Block& block, float* pixel, float* scratch) {
  const TapProblem& p = call.problem;
  const int64_t channels = p.s.channels, width = p.s.width, strip = block.unit % p.strips.count;
  const int64_t first = strip * p.strips.height, end = first + p.strips.height_of(strip);
  const BlockRows source = rows_of(call.source.f32(), p.s, p.strips, block, scratch);
  const ImageRows<float> result{
      call.result.f32() + block.unit / p.strips.count * p.s.height * width * channels, end, width, channels};
  std::fill_n(pixel, block.channels, 0.0f);
  // The gradient of the images reverses the filter's taps.
  const float* weight = call.packed + (p.gradient ? (n * n - 1) * channels : 0) + block.channel;
  const EpilogueInTwo epilogue(call.epilogue);
  for (int64_t i = first; i < end; i += 2) {
    const auto from = source.rows.rows<n + 1>(i - n / 2 - source.first, source.channel, pixel);
    const auto to = result.rows<2>(i, block.channel, pixel + block.channels);
    ForRow(block.channels, [&](const auto& at) LINNET_LAMBDA {
      DepthwiseTwoRows<n>(from, source.rows.width, width, weight, p.gradient ? -channels : channels, to, at,
          FinishOf(epilogue.first, block.channel, at));
    });
    if (!epilogue.last.any()) continue;
    for (const auto& row : to)
      if (row.step > 0)
        ApplyEpilogue(
            epilogue.last, block.channel, block.channels, width, row.first, row.step, row.first - call.result.f32());
  }
}

// Rows [first, end) of the results of an image. `pixel`: memory for two pixels, for zeros and for unneeded results.
template <int n> void DepthwiseByPatches(const TapCall& call, int64_t image, int64_t first, int64_t end, float* pixel) {
  using Patch = DepthwisePatch<n>;
  const TapProblem& p = call.problem;
  const int64_t channels = p.s.channels, width = p.result_width();
  const ImageRows<const float> source{call.source.f32() + image * p.source_height() * p.source_width() * channels,
      p.source_height(), p.source_width(), channels};
  const ImageRows<float> result{call.result.f32() + image * p.result_height() * width * channels, end, width, channels};
  std::fill_n(pixel, channels, 0.0f);
  const EpilogueInTwo epilogue(call.epilogue);
  for (int64_t i = first; i < end; i += 2) {
    const auto from = source.rows<Patch::kSide>(i * Patch::kStride - n / 2, 0, pixel);
    const auto to = result.rows<2>(i, 0, pixel + channels);
    for (int64_t j = 0; j < width; j += 2) {
      Patch patch;
      for (int a = 0; a < Patch::kSide; ++a)
        for (int b = 0; b < Patch::kSide; ++b) {
          const int64_t column = j * Patch::kStride - n / 2 + b;
          patch.source[a][b] = column < 0 || column >= source.width ? pixel : from[a].pixel(column);
        }
      for (int r = 0; r < 2; ++r)
        for (int c = 0; c < 2; ++c) patch.result[r][c] = j + c < width ? to[r].pixel(j + c) : pixel + channels;
      ForRow(channels,
          [&](const auto& at) LINNET_LAMBDA { patch.Run(call.packed, channels, at, FinishOf(epilogue.first, 0, at)); });
    }
    if (!epilogue.last.any()) continue;
    for (const auto& row : to)
      if (row.step > 0)
        ApplyEpilogue(epilogue.last, 0, channels, width, row.first, row.step, row.first - call.result.f32());
  }
}

void depthwise_by_patches(const TapCall& call, ThreadPool& pool) {
  const TapProblem& p = call.problem;
  constexpr int64_t kTasksOfThread = 4;
  const int64_t pairs = ceil_div(p.result_height(), 2);
  const int64_t bands = std::min(pairs, ceil_div(kTasksOfThread * pool.size(), p.s.images));
  const Deal pairs_of{pairs, bands};
  pool.run(p.s.images * bands, [&](int64_t task, int worker) {
    const int64_t band = task % bands, first = 2 * pairs_of.begin(band),
                  end = std::min(p.result_height(), 2 * pairs_of.begin(band + 1));
    float* pixel = call.scratch + worker * p.scratch_floats();
    constexpr int n = kLargestPatches;
    (p.s.rows == 3 ? DepthwiseByPatches<3> : DepthwiseByPatches<n>)(call, task / bands, first, end, pixel);
  });
}

void taps(const TapCall& call, ThreadPool& pool) {
  const TapProblem& p = call.problem;
  const int64_t channels = p.s.channels;
  if (!p.grouped && by_patches(p)) return depthwise_by_patches(call, pool);
  const int64_t width = block_width(p, pool.size());
  pool.run(p.units * ceil_div(p.s.filters, width), [&](int64_t task, int worker) {
    const Block block(task, p.s.filters, width);
    float* scratch = call.scratch + worker * p.scratch_floats();
    if (p.grouped) {
      CopyGroups(call, block, scratch);
      return DepthwiseStrip(call, block, 0, 0, scratch);
    }
    if (by_rows(p.s)) {
      constexpr int n = kLargestRows, most = std::min(5, n);
      const auto run = p.s.rows == 3 ? DepthwiseByRows<3> : p.s.rows == 5 ? DepthwiseByRows<most> : DepthwiseByRows<n>;
      return run(call, block, scratch + p.strips.floats, scratch);
    }
    CopyBlock(call.source.f32(), p.source_height(), p.source_width(), channels, p.strips, block, scratch);
    for (int64_t row = 0; row < p.phase_step(); ++row)
      for (int64_t column = 0; column < std::min(p.phase_step(), p.result_width()); ++column)
        DepthwiseStrip(call, block, row, column, scratch);
  });
}

// Distances in floats, and the target of the sums.
struct DepthwiseSumsCall {
  Pixels pixels;
  int64_t x_row, x_column;  // from tap to tap, in x
  int64_t sums_row, sums_column;
  bool accumulate;
};

// sums[tap, channels] (+)= sum over a strip's pixels of dy * x, for kTapRows x kTapColumns taps.
template <int kTapRows, int kTapColumns, class At> HWY_INLINE void DepthwiseSums(
    const DepthwiseSumsCall& call, const float* dy, const float* x, float* sums, const At& at) {
  const Pixels& pixels = call.pixels;
  Floats r[kTapRows][kTapColumns];
#pragma GCC unroll 3
  for (int a = 0; a < kTapRows; ++a)
#pragma GCC unroll 7
    for (int b = 0; b < kTapColumns; ++b)
      r[a][b] = call.accumulate ? at.load(sums + a * call.sums_row + b * call.sums_column) : SetAll(0);
  for (int64_t row = 0; row < pixels.rows; ++row, x += pixels.x_row)
    for (int64_t j = 0; j < pixels.columns; ++j, x += pixels.x_step, dy += pixels.slope_step) {
      hwy::Prefetch(dy + kPixelsAhead * pixels.slope_step + at.first);
      const Floats slope = at.load(dy);
#pragma GCC unroll 3
      for (int a = 0; a < kTapRows; ++a)
#pragma GCC unroll 7
        for (int b = 0; b < kTapColumns; ++b)
          r[a][b] = hn::MulAdd(slope, at.load(x + a * call.x_row + b * call.x_column), r[a][b]);
    }
#pragma GCC unroll 3
  for (int a = 0; a < kTapRows; ++a)
#pragma GCC unroll 7
    for (int b = 0; b < kTapColumns; ++b) at.store(r[a][b], sums + a * call.sums_row + b * call.sums_column);
}

template <int kTapRows, int kTapColumns> HWY_INLINE void DepthwiseTaps(
    const DepthwiseSumsCall& call, int64_t channels, const float* dy, const float* x, float* sums) {
  ForRow(channels, [&](const auto& at) LINNET_LAMBDA { DepthwiseSums<kTapRows, kTapColumns>(call, dy, x, sums, at); });
}

// Taps [b, columns) of a filter's row, as many at a time as registers allow.
template <int kTaps> HWY_INLINE void DepthwiseRow(const DepthwiseSumsCall& call, int64_t channels, const float* dy,
    const float* x, float* sums, int64_t b, int64_t columns) {
  for (; b + kTaps <= columns; b += kTaps)
    DepthwiseTaps<1, kTaps>(call, channels, dy, x + b * call.x_column, sums + b * call.sums_column);
  if constexpr (kTaps > 1)
    if (b < columns) DepthwiseRow<kTaps / 2>(call, channels, dy, x, sums, b, columns);
}

// Sums the products of a block. zeros: memory for a pixel of the block.
void DepthwiseSumsByRows(const WeightCall& call, const Block& block, bool accumulate, float* sums, float* zeros) {
  const WeightProblem& p = call.problem;
  const int64_t channels = p.s.channels, height = p.s.height, width = p.s.width, strip = block.unit % p.strips.count;
  const int64_t offset = block.unit / p.strips.count * height * width * channels;
  const int64_t first = strip * p.strips.height, end = first + p.strips.height_of(strip);
  const ImageRows<const float> source{call.x.f32() + offset, height, width, channels};
  const ImageRows<const float> slopes{call.dy.f32() + offset, end, width, channels};
  std::fill_n(zeros, block.channels, 0.0f);
  for (int64_t i = first; i < end; i += 2) {
    const auto x = source.rows<4>(i - 1, block.channel, zeros);
    const auto dy = slopes.rows<2>(i, block.channel, zeros);
    ForRow(block.channels, [&](const auto& at) LINNET_LAMBDA {
      DepthwiseTwoRowSums(x, dy, width, sums, channels, accumulate || i > first, at);
    });
  }
}

void weights(const WeightCall& call, ThreadPool& pool) {
  const WeightProblem& p = call.problem;
  const ConvolutionSizes& s = p.s;
  const Strips& strips = p.strips;
  const int64_t channels = s.channels, row_pitch = strips.columns * strips.pitch, blocks = channel_blocks(s);
  const Deal units{p.units, p.partials};
  pool.run(p.partials * blocks, [&](int64_t task, int worker) {
    const int64_t partial = task / blocks;
    float* scratch = call.scratch + worker * p.scratch_floats();
    for (int64_t unit = units.begin(partial); unit < units.begin(partial + 1); ++unit) {
      const Block block(unit * blocks + task % blocks, channels);
      if (by_rows(s) && s.rows == 3 && !copies_blocks(s)) {
        DepthwiseSumsByRows(
            call, block, unit > units.begin(partial), call.sums + partial * p.elements + block.channel, scratch);
        continue;
      }
      CopyBlock(call.x.f32(), s.height, s.width, channels, strips, block, scratch);
      const int64_t image = unit / strips.count, strip = unit % strips.count, step = s.stride * strips.pitch;
      const float* dy =
          call.dy.f32() + (image * s.out_height + strip * strips.height) * s.out_width * channels + block.channel;
      float* sums = call.sums + partial * p.elements + block.channel;
      const DepthwiseSumsCall taps{
          {strips.height_of(strip), s.out_width, step, s.stride * row_pitch - s.out_width * step, channels},
          s.dilation * row_pitch, s.dilation * strips.pitch, s.columns * channels, channels,
          unit > units.begin(partial)};
      if (kMaxTaps >= 3 && s.rows == 3 && s.columns == 3) DepthwiseTaps<3, 3>(taps, block.channels, dy, scratch, sums);
      else
        for (int64_t a = 0; a < s.rows; ++a)
          DepthwiseRow<kMaxTaps>(
              taps, block.channels, dy, scratch + a * taps.x_row, sums + a * taps.sums_row, 0, s.columns);
    }
  });
  AddPartials<tile::F32>(call, /*turned=*/true, pool);
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
HWY_EXPORT(taps);
HWY_EXPORT(weights);

void pack_depthwise(const PackCall& call, ThreadPool&) {
  const ConvolutionSizes& s = call.problem.s;
  const int64_t taps = s.taps() * s.group_channels();
  for (int64_t o = 0; o < s.filters; ++o)
    for (int64_t tap = 0; tap < taps; ++tap) call.packed[tap * s.filters + o] = call.weight[o * taps + tap];
}

void depthwise_taps(const TapCall& call, ThreadPool& pool) { HWY_DYNAMIC_DISPATCH(taps)(call, pool); }
void depthwise_weights(const WeightCall& call, ThreadPool& pool) { HWY_DYNAMIC_DISPATCH(weights)(call, pool); }
}  // namespace linnet
#endif
