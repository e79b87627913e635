#include <algorithm>
#include <cmath>
#include <limits>
#include "base/numbers.h"
#include "engine/kernels/conv/dense_head.h"
#include "engine/kernels/conv/pool.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/reduce/reduce.h"

#define HWY_TARGET_INCLUDE "engine/kernels/conv/pool_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/lanes-inl.h"

#ifndef LINNET_KERNELS_CONV_POOL_ONCE
#define LINNET_KERNELS_CONV_POOL_ONCE
// Sizes of the workspaces.
namespace linnet::conv_pool_layout {
constexpr int64_t kLanes = 16;  // filters are padded to a multiple of this: the longest vector of any instruction set
constexpr int64_t kStrip = 16;  // pooled columns that are computed from one strip of transformed pixels
constexpr int64_t kTaps = 9;
constexpr int64_t kSums = 12;  // transformed taps: three rows of four

constexpr int64_t padded_filters(const ConvPoolShape& s) { return round_up(s.filters, kLanes); }

// One channel of an image with zeros around it. A strip reads two vectors past its own columns.
constexpr int64_t row_floats(const ConvPoolShape& s) { return 2 * round_up(s.pooled_width(), kStrip) + 16; }
constexpr int64_t plane_rows(const ConvPoolShape& s) { return 2 * s.pooled_height() + 2; }
constexpr int64_t plane_floats(const ConvPoolShape& s) { return plane_rows(s) * row_floats(s); }
constexpr int64_t image_floats(const ConvPoolShape& s) { return s.channels * plane_floats(s); }

// The images of one task, enough to outweigh its overhead. By shape alone.
constexpr int64_t groups(const ConvPoolShape& s) { return std::clamp<int64_t>(ceil_div(s.images, 8), 1, 32); }

// Weight gradient: for each group its sums, for each thread an image, one plane's pairs of rows, and slopes.
constexpr int64_t sum_floats(const ConvPoolShape& s) { return padded_filters(s) * (s.channels * kTaps + 1); }
constexpr int64_t pair_row(const ConvPoolShape& s) { return 2 * round_up(2 * s.pooled_width() + 2, 16); }
constexpr int64_t pair_floats(const ConvPoolShape& s) { return (plane_rows(s) - 1) * pair_row(s); }
// If the gradient of the pooled images is a product, it is computed for this many images at a time: enough to share
// reads of the factor, few enough for L2.
constexpr int64_t kProductImages = 5;
constexpr int64_t slope_floats(const ConvPoolShape& s) {
  return round_up(kProductImages * s.pooled_height() * s.pooled_width() * s.filters, kLanes);
}
constexpr int64_t gradient_scratch_floats(const ConvPoolShape& s) {
  return image_floats(s) + pair_floats(s) + slope_floats(s);
}
// Input gradient: for each thread an image, channels last, zeros around it.
constexpr int64_t gradient_floats(const ConvPoolShape& s) {
  return round_up((s.height + 2) * (s.width + 2) * s.channels, kLanes);
}
}  // namespace linnet::conv_pool_layout

namespace linnet {
namespace {
// Weights by vectors of filters.
struct PackedWeights {
  const float* sums;  // [blocks, channels, 12, kLanes], transformed
  const float* taps;  // [blocks, channels, 9, kLanes]
  const float* bias;  // [blocks, kLanes]
  float limit;        // pixels up to this size cannot overflow
};

struct ConvPoolCall {
  ConvPoolShape shape;
  ConvPoolImages x;
  PackedWeights weights;
  float* y;
  uint8_t* which;
};

struct WeightGradientCall {
  ConvPoolShape shape;
  ConvPoolImages x;
  const uint8_t* which;
  const float* dy;
  int64_t dy_image;  // the image that dy begins with
};

struct InputGradientCall {
  ConvPoolShape shape;
  const float* weight;
  const uint8_t* which;
  const float* dy;
  float* dx;
};
}  // namespace
}  // namespace linnet
#endif
#include "engine/kernels/conv/conv_pool_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
// Gradients of the pooled convolution. One of a window's four sums had the maximum, so each pooled gradient meets nine
// pixels (of every channel), those under the filter at that location: `which` selects it.

// Gradients of a vector of filters at one pooled pixel: zero where ReLU was zero, and past the last filter.
struct PooledGradient {
  Floats dy;
  hn::Vec<Words> location;  // kDeadWindow where dy is zero
};

HWY_INLINE PooledGradient LoadGradient(const float* dy, const uint8_t* which, int64_t count) {
  const Words words;
  hn::Vec<Words> location;
  Floats gradient;
  if (count >= kFloatLanes) {
    location = hn::PromoteTo(words, hn::LoadU(ByteTag(), which));
    gradient = LoadFloats(dy);
  } else {
    uint8_t part[kFloatLanes];
    std::fill(std::copy_n(which, count, part), part + kFloatLanes, kDeadWindow);
    location = hn::PromoteTo(words, hn::LoadU(ByteTag(), part));
    gradient = LoadPart(dy, count);
  }
  const auto dead = hn::Eq(location, hn::Set(words, kDeadWindow));
  return {hn::IfThenZeroElse(hn::RebindMask(FloatTag(), dead), gradient), location};
}

// Every lane takes one of its block's four lanes, by the two low bits of `lane`; all blocks hold the same. A lookup
// across blocks costs twice as much.
HWY_INLINE Floats PickInBlock(Floats x, hn::Vec<Words> lane) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return Floats{_mm512_permutevar_ps(x.raw, lane.raw)};
#elif HWY_TARGET == HWY_AVX2
  return Floats{_mm256_permutevar_ps(x.raw, lane.raw)};
#else
  return hn::TableLookupLanes(x, hn::IndicesFromVec(FloatTag(), hn::And(lane, hn::Set(Words(), 3))));
#endif
}

// A plane's rows y and y + 1 interleaved, for all y: pairs [plane_rows - 1, pair_row / 2, 2]. Pixels (y, x), (y + 1,
// x), (y, x + 1) and (y + 1, x + 1) are consecutive.
void PairRows(const ConvPoolShape& s, const float* plane, float* pairs) {
  const int64_t stride = row_floats(s), rows = plane_rows(s) - 1, columns = 2 * s.pooled_width() + 2;
  for (int64_t row = 0; row < rows; ++row, plane += stride, pairs += pair_row(s))
    for (int64_t column = 0; column < columns; column += kFloatLanes)
      hn::StoreInterleaved2(
          LoadFloats(plane + column), LoadFloats(plane + stride + column), FloatTag(), pairs + 2 * column);
}

// Adds the gradients of one channel's nine taps, and of the bias, over all pooled pixels of an image, for one vector of
// filters. sums [9, kLanes]; bias [kLanes] or nullptr. For tap (r, s) each filter needs one of the four pixels (r +
// 0..1, s + 0..1) of a 4x4 window. Every block of four lanes loads them, and `lane` selects.
void AddChannel(
    const WeightGradientCall& call, int64_t image, int64_t filter, const float* pairs, float* sums, float* bias) {
  const FloatTag d;
  const ConvPoolShape& s = call.shape;
  const int64_t stride = pair_row(s), count = s.filters - filter;
  const int64_t pooled = s.pooled_height() * s.pooled_width() * s.filters;
  const float* dy = call.dy + (image - call.dy_image) * pooled + filter;
  const uint8_t* which = call.which + image * pooled + filter;
  alignas(16) static constexpr uint32_t kLaneOf[4] = {0, 2, 1, 3};  // the second location is in the first row
  const Floats lane_of = hn::BitCast(d, hn::LoadDup128(Words(), kLaneOf)), zero = SetAll(0);
  Floats g0 = zero, g1 = zero, g2 = zero, g3 = zero, g4 = zero, g5 = zero, g6 = zero, g7 = zero, g8 = zero, gb = zero;
  for (int64_t row = 0; row < s.pooled_height(); ++row) {
    const float* p = pairs + 2 * row * stride;
    for (int64_t column = 0; column < s.pooled_width(); ++column, p += 4, dy += s.filters, which += s.filters) {
      const PooledGradient gradient = LoadGradient(dy, which, count);
      const auto lane = hn::BitCast(Words(), PickInBlock(lane_of, gradient.location));
      const auto add = [&](Floats sum, const float* four) LINNET_LAMBDA {
        return hn::MulAdd(PickInBlock(hn::LoadDup128(d, four), lane), gradient.dy, sum);
      };
      const float *p1 = p + stride, *p2 = p1 + stride;
      gb = hn::Add(gb, gradient.dy);
      g0 = add(g0, p), g1 = add(g1, p + 2), g2 = add(g2, p + 4);
      g3 = add(g3, p1), g4 = add(g4, p1 + 2), g5 = add(g5, p1 + 4);
      g6 = add(g6, p2), g7 = add(g7, p2 + 2), g8 = add(g8, p2 + 4);
    }
  }
  const auto add_to = [](Floats x, float* to) LINNET_LAMBDA { StoreFloats(hn::Add(LoadFloats(to), x), to); };
  add_to(g0, sums), add_to(g1, sums + kLanes), add_to(g2, sums + 2 * kLanes);
  add_to(g3, sums + 3 * kLanes), add_to(g4, sums + 4 * kLanes), add_to(g5, sums + 5 * kLanes);
  add_to(g6, sums + 6 * kLanes), add_to(g7, sums + 7 * kLanes), add_to(g8, sums + 8 * kLanes);
  if (bias) add_to(gb, bias);
}

// Sums the images [begin, end): sums [blocks, channels, 9, kLanes], then the bias' [blocks, kLanes]. scratch: the
// planes of an image, then the pairs of one.
void WeightGradientImages(const WeightGradientCall& call, int64_t begin, int64_t end, float* scratch, float* sums) {
  const ConvPoolShape& s = call.shape;
  float *bias = sums + padded_filters(s) * s.channels * kTaps, *pairs = scratch + image_floats(s);
  std::fill_n(scratch, image_floats(s), 0.0f);
  for (int64_t image = begin; image < end; ++image) {
    CopyImage(s, call.x, image, scratch);
    for (int64_t c = 0; c < s.channels; ++c) {
      PairRows(s, scratch + c * plane_floats(s), pairs);
      for (int64_t filter = 0; filter < s.filters; filter += kFloatLanes)
        AddChannel(call, image, filter, pairs,
            sums + (filter / kLanes * s.channels + c) * kTaps * kLanes + filter % kLanes,
            c == 0 ? bias + filter : nullptr);
    }
  }
}

// One image; padded [height + 2, width + 2, channels] also collects what falls outside.
HWY_INLINE void InputGradientImage(const InputGradientCall& call, int64_t image, float* padded) {
  const ConvPoolShape& s = call.shape;
  const int64_t row_stride = (s.width + 2) * s.channels;
  std::fill_n(padded, (s.height + 2) * row_stride, 0.0f);
  int64_t at = image * s.pooled_height() * s.pooled_width() * s.filters;
  for (int64_t row = 0; row < s.pooled_height(); ++row)
    for (int64_t column = 0; column < s.pooled_width(); ++column)
      for (int64_t o = 0; o < s.filters; ++o, ++at) {
        const int64_t location = call.which[at];
        if (location == kDeadWindow) continue;
        const Floats dy = SetAll(call.dy[at]);
        float* to = padded + (2 * row + location / 2) * row_stride + (2 * column + location % 2) * s.channels;
        const float* weight = call.weight + o * kTaps * s.channels;
        for (int64_t r = 0; r < 3; ++r, to += row_stride, weight += 3 * s.channels)
          ForRow(3 * s.channels, [=](const auto& lanes) LINNET_LAMBDA {
            lanes.store(hn::MulAdd(dy, lanes.load(weight), lanes.load(to)), to);
          });
      }
  float* dx = call.dx + image * s.height * s.width * s.channels;
  for (int64_t row = 0; row < s.height; ++row)
    std::copy_n(padded + (row + 1) * row_stride + s.channels, s.width * s.channels, dx + row * s.width * s.channels);
}

void InputGradientImages(const InputGradientCall& call, int64_t begin, int64_t end, float* padded) {
  for (int64_t image = begin; image < end; ++image) InputGradientImage(call, image, padded);
}

using Places = hn::Vec<IntTag>;

template <class T> void largest_of_windows(
    const MaxPoolSizes& s, StoredFloats x_rows, MutableStoredFloats y_rows, uint8_t* places, ThreadPool& pool) {
  const T* x = x_rows.as<T>();
  T* y = y_rows.as<T>();
  pool.run(s.images * s.out_height, [&](int64_t task, int) {
    const int64_t row = task / s.out_height * s.height + task % s.out_height * s.stride;
    for (int64_t column = 0; column < s.out_width; ++column) {
      const T* window = x + (row * s.width + column * s.stride) * s.channels;
      const int64_t out = (task * s.out_width + column) * s.channels;
      ForRow(s.channels, [&](const auto& at) LINNET_LAMBDA {
        Floats largest = at.load(window);
        Places where = hn::Zero(IntTag());
        for (int64_t i = 0; i < s.size; ++i)
          for (int64_t j = 0; j < s.size; ++j) {
            if (i + j == 0) continue;
            const Floats value = at.load(window + (i * s.width + j) * s.channels);
            const auto is_larger = hn::Or(hn::Gt(value, largest), hn::IsNaN(value));
            largest = hn::IfThenElse(is_larger, value, largest);
            where = hn::IfThenElse(
                hn::RebindMask(IntTag(), is_larger), hn::Set(IntTag(), static_cast<int32_t>(i * s.size + j)), where);
          }
        at.store(largest, y + out);  // one of the values: nothing is rounded
        at.store_bytes(hn::DemoteTo(ByteTag(), where), places + out);
      });
    }
  });
}

auto largest_of_windows_of(bool bf16) { return bf16 ? largest_of_windows<Bfloat16> : largest_of_windows<float>; }

// One row of the image at a time, from all windows that meet it: sums are fp32 until the row is complete.
template <class T> void max_pool_gradient(const MaxPoolSizes& s, StoredFloats dy, const uint8_t* places,
    MutableStoredFloats dx, float* workspace, ThreadPool& pool) {
  pool.run(s.images * s.height, [&](int64_t task, int worker) {
    const int64_t image = task / s.height, row = task % s.height;
    float* const sums = workspace + worker * s.row_floats();
    std::fill_n(sums, s.row_floats(), 0.0f);
    const int64_t first = std::max<int64_t>(0, (row - s.size + s.stride) / s.stride);
    const int64_t last = std::min(s.out_height - 1, row / s.stride);
    for (int64_t window_row = first; window_row <= last; ++window_row) {
      const int64_t inside = (row - window_row * s.stride) * s.size;  // place of the row's first element in a window
      for (int64_t column = 0; column < s.out_width; ++column) {
        const int64_t from = ((image * s.out_height + window_row) * s.out_width + column) * s.channels;
        float* const to = sums + column * s.stride * s.channels;
        ForRow(s.channels, [&](const auto& at) LINNET_LAMBDA {
          const Floats slope = at.load(dy.as<T>() + from);
          const Places place = hn::PromoteTo(IntTag(), at.load_bytes(places + from));
          for (int64_t j = 0; j < s.size; ++j) {
            const auto is_here = hn::Eq(place, hn::Set(IntTag(), static_cast<int32_t>(inside + j)));
            const Floats part = hn::IfThenElseZero(hn::RebindMask(FloatTag(), is_here), slope);
            at.store(hn::Add(at.load(to + j * s.channels), part), to + j * s.channels);
          }
        });
      }
    }
    T* const out = dx.as<T>() + task * s.row_floats();
    ForRow(s.row_floats(), [&](const auto& at) LINNET_LAMBDA { at.store(at.load(sums), out); });
  });
}

auto max_pool_gradient_of(bool bf16) { return bf16 ? max_pool_gradient<Bfloat16> : max_pool_gradient<float>; }
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {
HWY_EXPORT(largest_of_windows_of);
HWY_EXPORT(max_pool_gradient_of);
HWY_EXPORT(ForwardImages);
HWY_EXPORT(WeightGradientImages);
HWY_EXPORT(InputGradientImages);

using namespace conv_pool_layout;

// Packs filter `o`; filters past the last are zero.
void pack_filter(const ConvPoolShape& s, const float* weight, int64_t o, float* sums, float* taps) {
  sums += o / kLanes * s.channels * kSums * kLanes + o % kLanes;
  taps += o / kLanes * s.channels * kTaps * kLanes + o % kLanes;
  for (int64_t c = 0; c < s.channels; ++c)
    for (int64_t row = 0; row < 3; ++row) {
      float g[3] = {0, 0, 0};
      for (int64_t i = 0; i < 3; ++i) {
        if (o < s.filters) g[i] = weight[((o * 3 + row) * 3 + i) * s.channels + c];
        taps[(c * kTaps + row * 3 + i) * kLanes] = g[i];
      }
      float* out = sums + (c * kSums + row * 4) * kLanes;
      out[0] = g[0];
      out[kLanes] = 0.5f * (g[0] + g[2] + g[1]);
      out[2 * kLanes] = 0.5f * (g[0] + g[2] - g[1]);
      out[3 * kLanes] = g[2];
    }
}

// Within this limit on pixels no sum of F(2, 3) overflows: it adds 9 channels of products of at most 3 |d| |g|.
// Negative, which no pixel passes, if a weight or bias is NaN or unusually large.
float pixel_limit(const ConvPoolShape& s, const float* weight, const float* bias) {
  constexpr float huge = std::numeric_limits<float>::max(), allowed = huge / (1 << 20);
  float largest = 1;
  bool fits = true;
  for (int64_t i = 0; i < s.filters * kTaps * s.channels; ++i) {
    fits = fits && std::fabs(weight[i]) <= allowed;
    largest = std::max(largest, std::fabs(weight[i]));
  }
  for (int64_t o = 0; o < s.filters; ++o) fits = fits && std::fabs(bias[o]) <= allowed;
  return fits ? huge / (64 * static_cast<float>(s.channels) * largest) : -1.0f;
}

// Of a thread in the forward pass: an image and a strip.
int64_t scratch_floats(const ConvPoolShape& s) { return image_floats(s) + plane_rows(s) * s.channels * 4 * kStrip; }
}  // namespace

size_t conv_pool_workspace(const ConvPoolShape& s, int threads) {
  const int64_t packed = padded_filters(s) * (s.channels * (kSums + kTaps) + 1);
  const int64_t forward = packed + threads * scratch_floats(s);
  const int64_t weights = groups(s) * sum_floats(s) + threads * gradient_scratch_floats(s);
  const int64_t input = threads * gradient_floats(s);
  return bytes_for<float>(std::max({forward, weights, input}));
}

void conv_pool_forward(const ConvPoolShape& s, const ConvPoolImages& x, const float* weight, const float* bias,
    float* y, uint8_t* which, std::byte* workspace, ThreadPool& pool) {
  const int64_t filters = padded_filters(s);
  float* sums = reinterpret_cast<float*>(workspace);
  float* taps = sums + filters * s.channels * kSums;
  float* packed_bias = taps + filters * s.channels * kTaps;
  float* scratch = packed_bias + filters;
  for_each_index(
      pool, filters, s.channels * (kSums + kTaps), [&](int64_t o) { pack_filter(s, weight, o, sums, taps); });
  for (int64_t o = 0; o < filters; ++o) packed_bias[o] = o < s.filters ? bias[o] : 0.0f;
  const ConvPoolCall call{s, x, {sums, taps, packed_bias, pixel_limit(s, weight, bias)}, y, which};
  const int64_t tasks = groups(s);
  pool.run(tasks, [&](int64_t task, int worker) {
    HWY_DYNAMIC_DISPATCH(ForwardImages)
    (call, task * s.images / tasks, (task + 1) * s.images / tasks, scratch + worker * scratch_floats(s));
  });
}

void conv_pool_weight_gradient(const ConvPoolShape& s, const ConvPoolImages& x, const uint8_t* which,
    const ConvPoolSlopes& slopes, float* dweight, float* dbias, std::byte* workspace, ThreadPool& pool) {
  const int64_t tasks = groups(s), size = sum_floats(s);
  float* sums = reinterpret_cast<float*>(workspace);  // [tasks, size]
  float* scratch = sums + tasks * size;
  const DenseHeadShape product{s.images, slopes.outputs, s.pooled_height() * s.pooled_width() * s.filters};
  pool.run(tasks, [&](int64_t task, int worker) {
    const int64_t begin = task * s.images / tasks, end = (task + 1) * s.images / tasks;
    float *image = scratch + worker * gradient_scratch_floats(s), *dy = image + image_floats(s) + pair_floats(s);
    std::fill_n(sums + task * size, size, 0.0f);
    WeightGradientCall call{s, x, which, slopes.dy, 0};
    const int64_t parts = slopes.dy ? 1 : ceil_div(end - begin, kProductImages);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t from = begin + part * (end - begin) / parts, to = begin + (part + 1) * (end - begin) / parts;
      if (!slopes.dy) {
        dense_head_input_gradient_rows(product, slopes.factor, slopes.weight, from, to, dy);
        call.dy = dy, call.dy_image = from;
      }
      HWY_DYNAMIC_DISPATCH(WeightGradientImages)(call, from, to, image, sums + task * size);
    }
  });
  add_rows(tasks, size, size, sums, false, sums, kLanes, pool);
  for (int64_t o = 0; o < s.filters; ++o) {
    const float* from = sums + o / kLanes * s.channels * kTaps * kLanes + o % kLanes;
    for (int64_t tap = 0; tap < kTaps; ++tap)
      for (int64_t c = 0; c < s.channels; ++c)
        dweight[(o * kTaps + tap) * s.channels + c] = from[(c * kTaps + tap) * kLanes];
    dbias[o] = sums[padded_filters(s) * s.channels * kTaps + o];
  }
}

void conv_pool_input_gradient(const ConvPoolShape& s, const float* weight, const uint8_t* which, const float* dy,
    float* dx, std::byte* workspace, ThreadPool& pool) {
  float* scratch = reinterpret_cast<float*>(workspace);
  const InputGradientCall call{s, weight, which, dy, dx};
  const int64_t tasks = groups(s);
  pool.run(tasks, [&](int64_t task, int worker) {
    HWY_DYNAMIC_DISPATCH(InputGradientImages)
    (call, task * s.images / tasks, (task + 1) * s.images / tasks, scratch + worker * gradient_floats(s));
  });
}

void max_pool_forward(
    const MaxPoolSizes& sizes, StoredFloats x, MutableStoredFloats y, uint8_t* places, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(largest_of_windows_of)(y.is_bf16)(sizes, x, y, places, pool);
}

void max_pool_backward(const MaxPoolSizes& sizes, StoredFloats dy, const uint8_t* places, MutableStoredFloats dx,
    std::byte* workspace, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(max_pool_gradient_of)
  (dx.is_bf16)(sizes, dy, places, dx, reinterpret_cast<float*>(workspace), pool);
}
}  // namespace linnet
#endif
