#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include "base/numbers.h"
#include "engine/kernels/conv/conv_pool.h"
#include "engine/kernels/conv/dense_head.h"
#include "engine/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/conv/conv_pool_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
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
constexpr int64_t strip_floats(const ConvPoolShape& s) { return plane_rows(s) * s.channels * 4 * kStrip; }

// The images of one task, enough to outweigh its overhead. By shape alone.
constexpr int64_t groups(const ConvPoolShape& s) { return std::clamp<int64_t>((s.images + 7) / 8, 1, 32); }

// Forward: packed weights, then for each thread an image and a strip.
constexpr int64_t weight_floats(const ConvPoolShape& s) {
  return padded_filters(s) * (s.channels * (kSums + kTaps) + 1);
}
// Weight gradient: for each group its sums, for each thread an image, one plane's pairs of rows, and slopes.
constexpr int64_t sum_floats(const ConvPoolShape& s) { return padded_filters(s) * (s.channels * kTaps + 1); }
constexpr int64_t pair_row(const ConvPoolShape& s) { return 2 * round_up(2 * s.pooled_width() + 2, 16); }
constexpr int64_t pair_floats(const ConvPoolShape& s) { return (plane_rows(s) - 1) * pair_row(s); }
// If the gradient of the pooled images is a product, that of a few images: enough to share reads of the factor, few
// enough for L2.
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

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
using namespace conv_pool_layout;

using Words = hn::Rebind<uint32_t, FloatTag>;

HWY_INLINE Floats FloatsOfBytes(const uint8_t* p, Floats scale, Floats shift) {
  const hn::Rebind<int32_t, FloatTag> integers;
  return hn::MulAdd(hn::ConvertTo(FloatTag(), hn::PromoteTo(integers, hn::LoadU(ByteTag(), p))), scale, shift);
}

// Row `row` of an image, channel `channel`, to out [width].
HWY_INLINE void CopyRow(const ConvPoolShape& s, const ConvPoolImages& x, int64_t row, int64_t channel, float* out) {
  const int64_t first = row * s.width * s.channels + channel;
  if (s.channels > 1) {
    for (int64_t j = 0; j < s.width; ++j) {
      const int64_t location = first + j * s.channels;
      out[j] =
          x.bytes ? static_cast<float>(x.bytes[location]) * x.scale[channel] + x.shift[channel] : x.floats[location];
    }
    return;
  }
  if (!x.bytes) return std::copy_n(x.floats + first, s.width, out), void();
  if (s.width < kFloatLanes) {
    for (int64_t j = 0; j < s.width; ++j) out[j] = static_cast<float>(x.bytes[first + j]) * x.scale[0] + x.shift[0];
    return;
  }
  const Floats scale = SetAll(x.scale[0]), shift = SetAll(x.shift[0]);
  for (int64_t j = 0; j < s.width; j += kFloatLanes) {
    const int64_t from = std::min(j, s.width - kFloatLanes);  // the last vector overlaps the one before
    StoreFloats(FloatsOfBytes(x.bytes + first + from, scale, shift), out + from);
  }
}

// Image `image` of x as planes [channels, plane_rows, row_floats]: pixel (row, column) of a channel at (row + 1, column
// + 1). The rest must be zero already.
HWY_INLINE void CopyImage(const ConvPoolShape& s, ConvPoolImages x, int64_t image, float* planes) {
  const int64_t stride = row_floats(s), offset = image * s.height * s.width * s.channels;
  if (x.bytes) x.bytes += offset;
  if (x.floats) x.floats += offset;
  for (int64_t channel = 0; channel < s.channels; ++channel, planes += plane_floats(s))
    for (int64_t row = 0; row < std::min(s.height, plane_rows(s) - 1); ++row)
      CopyRow(s, x, row, channel, planes + (row + 1) * stride + 1);
}

// Convolves the four pixels of a pooling window at a time, with a vector of filters. Along rows it is Winograd's F(2,
// 3) (Lavin & Gray 2016): two neighboring sums of three products cost four products. With pixels d and taps g of one
// row
//
//   m0 = (d0 - d2) g0                  m1 = (d1 + d2) (g0 + g1 + g2) / 2
//   m3 = (d1 - d3) g2                  m2 = (d2 - d1) (g0 - g1 + g2) / 2
//   d0 g0 + d1 g1 + d2 g2 = m0 + m1 + m2
//   d1 g0 + d2 g1 + d3 g2 = m1 - m2 - m3
//
// The m are first added up over the three rows and all channels. Sums of pixels turn infinity into NaN, so images with
// pixels that are not finite or near overflow are computed directly.
constexpr bool kFewRegisters = kFloatLanes < 16;  // 16 of them: the 12 weights of a channel do not stay there

// The target of a vector of filters of one pooled pixel; the last vector may be partial.
struct Target {
  float* y;
  uint8_t* which;
  int64_t count;

  template <bool kWhole> HWY_INLINE void store(Floats values, hn::Vec<Words> locations) const {
    const LanesAt<kWhole> at{0, count};
    at.store(values, y);
    at.store_bytes(hn::TruncateTo(ByteTag(), locations), which);
  }
};

// ReLU and the final location, for the largest of a window with its bias.
template <bool kWhole> HWY_INLINE void Finish(Floats largest, hn::Vec<Words> location, const Target& target) {
  const auto dead = hn::Le(largest, SetAll(0));
  target.store<kWhole>(hn::IfThenZeroElse(dead, largest),
      hn::IfThenElse(hn::RebindMask(Words(), dead), hn::Set(Words(), kDeadWindow), location));
}

// Finite sums. The bias is added only to the largest: rounding keeps the order.
template <bool kWhole>
HWY_INLINE void PoolFinite(Floats a0, Floats a1, Floats a2, Floats a3, Floats bias, const Target& target) {
  const Words words;
  const Floats largest = hn::Max(hn::Max(a0, a1), hn::Max(a2, a3));
  const auto is = [&](Floats a) LINNET_LAMBDA { return hn::RebindMask(words, hn::Eq(a, largest)); };
  hn::Vec<Words> location;
  if constexpr (kFewRegisters) {  // masks are vectors there, -1 where true: adding them is cheaper than a blend
    const auto minus = [&](Floats a) LINNET_LAMBDA { return hn::VecFromMask(words, is(a)); };
    location = hn::Add(hn::Set(words, 3), minus(a2));
    location = hn::Sub(hn::AndNot(minus(a1), location), minus(a1));
  } else {
    location = hn::IfThenElse(is(a2), hn::Set(words, 2), hn::Set(words, 3));
    location = hn::IfThenElse(is(a1), hn::Set(words, 1), location);
  }
  location = hn::IfThenZeroElse(is(a0), location);
  Finish<kWhole>(hn::Add(largest, bias), location, target);
}

template <bool kWhole>  // NaN is the largest
HWY_INLINE void PoolAny(const Floats* sums, const Target& target) {
  const Words words;
  Floats largest = sums[0];
  auto location = hn::Zero(words);
  for (uint32_t i = 1; i < 4; ++i) {
    const auto larger = hn::Or(hn::Gt(sums[i], largest), hn::IsNaN(sums[i]));
    largest = hn::IfThenElse(larger, sums[i], largest);
    location = hn::IfThenElse(hn::RebindMask(words, larger), hn::Set(words, i), location);
  }
  Finish<kWhole>(largest, location, target);
}

// Transforms the pixels d for columns [column, column + kStrip) of pooled pixels: strip [rows, channels, 4, kStrip].
void TransformStrip(const ConvPoolShape& s, const float* planes, int64_t column, float* strip) {
  const FloatTag d;
  const int64_t stride = row_floats(s), rows = plane_rows(s);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t channel = 0; channel < s.channels; ++channel, strip += 4 * kStrip) {
      const float* in = planes + (channel * rows + row) * stride + 2 * column;
      for (int64_t j = 0; j < kStrip; j += kFloatLanes) {
        Floats d0, d1, d2, d3;
        hn::LoadInterleaved2(d, in + 2 * j, d0, d1);
        hn::LoadInterleaved2(d, in + 2 * j + 2, d2, d3);
        hn::StoreU(hn::Sub(d0, d2), d, strip + j);
        hn::StoreU(hn::Add(d1, d2), d, strip + kStrip + j);
        hn::StoreU(hn::Sub(d2, d1), d, strip + 2 * kStrip + j);
        hn::StoreU(hn::Sub(d1, d3), d, strip + 3 * kStrip + j);
      }
    }
}

// m[row][i] += the products of one channel; v: its transformed pixels at one column, rows `stride` apart; weight(i): a
// vector of filters' transformed tap i.
template <class Weight>
HWY_INLINE void AddProducts(const float* HWY_RESTRICT v, int64_t stride, const Weight& weight, Floats (&m)[2][4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Floats g0 = weight(i), g1 = weight(4 + i), g2 = weight(8 + i);
    const Floats v1 = SetAll(v[stride + i * kStrip]), v2 = SetAll(v[2 * stride + i * kStrip]);
    m[0][i] = hn::MulAdd(SetAll(v[i * kStrip]), g0, m[0][i]);
    m[1][i] = hn::MulAdd(v1, g0, m[1][i]);
    m[0][i] = hn::MulAdd(v1, g1, m[0][i]);
    m[1][i] = hn::MulAdd(v2, g1, m[1][i]);
    m[0][i] = hn::MulAdd(v2, g2, m[0][i]);
    m[1][i] = hn::MulAdd(SetAll(v[3 * stride + i * kStrip]), g2, m[1][i]);
  }
}

// One pooled row of a strip, one vector of filters. add(v, m) adds the products of all channels.
template <bool kWhole, class Add> HWY_INLINE void StripRow(
    int64_t columns, const float* HWY_RESTRICT v, const Add& add, Floats bias, Target target, int64_t filters) {
  for (int64_t column = 0; column < columns; ++column, target.y += filters, target.which += filters) {
    const Floats zero = SetAll(0);
    Floats m[2][4] = {{zero, zero, zero, zero}, {zero, zero, zero, zero}};
    add(v + column, m);
    PoolFinite<kWhole>(hn::Add(m[0][0], hn::Add(m[0][1], m[0][2])), hn::Sub(hn::Sub(m[0][1], m[0][2]), m[0][3]),
        hn::Add(m[1][0], hn::Add(m[1][1], m[1][2])), hn::Sub(hn::Sub(m[1][1], m[1][2]), m[1][3]), bias, target);
  }
}

// Prefetches lines to be written `distance` pooled pixels later, for which stores would wait.
HWY_INLINE void FetchTarget(const Target& target, int64_t distance, int64_t filters) {
  __builtin_prefetch(target.y + distance * filters, 1);
  __builtin_prefetch(target.which + distance * filters, 1);
}

// Two pooled rows of a strip of one channel, for few registers: pixels are loaded once for both, and products m1 and m2
// are used up before m0 and m3 are computed. All columns' sums precede the choice of the largest, a long chain of
// instructions: registers suffice to look one column ahead, not two. Same bits as StripRow.
template <bool kWhole> HWY_INLINE void StripRowPair(int64_t columns, const float* HWY_RESTRICT v,
    const float* HWY_RESTRICT weights, Floats bias, Target upper, Target lower, int64_t pooled_width, int64_t filters) {
  constexpr int64_t kRow = 4 * kStrip;
  HWY_ALIGN float sums[kStrip * 8 * kFloatLanes];
  const auto sum = [&](int64_t column, int i) LINNET_LAMBDA { return sums + (column * 8 + i) * kFloatLanes; };
  for (int64_t column = 0; column < columns; ++column, ++v) {
    FetchTarget(upper, 2 * pooled_width + column, filters);
    FetchTarget(lower, 2 * pooled_width + column, filters);
    // m[row] for the four rows of pixels of the two windows.
    const auto products = [=](int i, Floats(&m)[4]) LINNET_LAMBDA {
      const Floats g0 = LoadFloats(weights + i * kLanes), g1 = LoadFloats(weights + (4 + i) * kLanes),
                   g2 = LoadFloats(weights + (8 + i) * kLanes);
      const auto pixel = [=](int row) LINNET_LAMBDA { return SetAll(v[row * kRow + i * kStrip]); };
      m[0] = hn::Mul(pixel(0), g0);
      const Floats v1 = pixel(1), v2 = pixel(2), v3 = pixel(3), v4 = pixel(4);
      m[0] = hn::MulAdd(v1, g1, m[0]);
      m[1] = hn::Mul(v1, g0);
      m[0] = hn::MulAdd(v2, g2, m[0]);
      m[1] = hn::MulAdd(v2, g1, m[1]);
      m[2] = hn::Mul(v2, g0);
      m[1] = hn::MulAdd(v3, g2, m[1]);
      m[2] = hn::MulAdd(v3, g1, m[2]);
      m[3] = hn::Mul(v3, g0);
      m[2] = hn::MulAdd(v4, g2, m[2]);
      m[3] = hn::MulAdd(v4, g1, m[3]);
      m[3] = hn::MulAdd(pixel(5), g2, m[3]);
    };
    Floats m1[4], m2[4], left[4], right[4];
    products(1, m1);
    products(2, m2);
#pragma GCC unroll 4
    for (int row = 0; row < 4; ++row) left[row] = hn::Add(m1[row], m2[row]), right[row] = hn::Sub(m1[row], m2[row]);
    products(0, m1);
#pragma GCC unroll 4
    for (int row = 0; row < 4; ++row) StoreFloats(hn::Add(m1[row], left[row]), sum(column, 2 * row));
    products(3, m2);
#pragma GCC unroll 4
    for (int row = 0; row < 4; ++row) StoreFloats(hn::Sub(right[row], m2[row]), sum(column, 2 * row + 1));
  }
  for (int64_t column = 0; column < columns; ++column) {
    const auto load = [&](int i) LINNET_LAMBDA { return LoadFloats(sum(column, i)); };
    PoolFinite<kWhole>(load(0), load(1), load(2), load(3), bias, upper);
    PoolFinite<kWhole>(load(4), load(5), load(6), load(7), bias, lower);
    upper.y += filters, upper.which += filters, lower.y += filters, lower.which += filters;
  }
}

HWY_INLINE Target TargetAt(const ConvPoolCall& call, int64_t image, int64_t row, int64_t column, int64_t filter) {
  const ConvPoolShape& s = call.shape;
  const int64_t at = ((image * s.pooled_height() + row) * s.pooled_width() + column) * s.filters + filter;
  return {call.y + at, call.which + at, s.filters - filter};
}

template <bool kWhole>
void FiniteStrip(const ConvPoolCall& call, int64_t image, int64_t column, int64_t filter, const float* strip) {
  const ConvPoolShape& s = call.shape;
  const int64_t columns = std::min(kStrip, s.pooled_width() - column), stride = s.channels * 4 * kStrip;
  // Blocks are kLanes wide whatever the vector's length.
  const float* g = call.weights.sums + filter / kLanes * s.channels * kSums * kLanes + filter % kLanes;
  const Floats bias = LoadFloats(call.weights.bias + filter);
  int64_t row = 0;
  if constexpr (kFewRegisters)
    if (s.channels == 1)
      for (; row + 2 <= s.pooled_height(); row += 2)
        StripRowPair<kWhole>(columns, strip + 2 * row * stride, g, bias, TargetAt(call, image, row, column, filter),
            TargetAt(call, image, row + 1, column, filter), s.pooled_width(), s.filters);
  const auto rows = [&](const auto& add) LINNET_LAMBDA {
    for (; row < s.pooled_height(); ++row)
      StripRow<kWhole>(
          columns, strip + 2 * row * stride, add, bias, TargetAt(call, image, row, column, filter), s.filters);
  };
  if (s.channels == 1) {  // the weights stay in registers
    Floats w[kSums];
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) w[i] = LoadFloats(g + i * kLanes);
    rows([&](const float* v, Floats(&m)[2][4]) LINNET_LAMBDA {
      AddProducts(
          v, 4 * kStrip, [&](int i) LINNET_LAMBDA { return w[i]; }, m);
    });
  } else {
    rows([&](const float* v, Floats(&m)[2][4]) LINNET_LAMBDA {
      const float* taps = g;
      for (int64_t c = 0; c < s.channels; ++c, v += 4 * kStrip, taps += kSums * kLanes)
        AddProducts(
            v, stride, [=](int i) LINNET_LAMBDA { return LoadFloats(taps + i * kLanes); }, m);
    });
  }
}

void FiniteImage(const ConvPoolCall& call, int64_t image, const float* planes, float* strip) {
  const ConvPoolShape& s = call.shape;
  for (int64_t column = 0; column < s.pooled_width(); column += kStrip) {
    TransformStrip(s, planes, column, strip);
    int64_t filter = 0;
    for (; filter + kFloatLanes <= s.filters; filter += kFloatLanes)
      FiniteStrip<true>(call, image, column, filter, strip);
    if (filter < s.filters) FiniteStrip<false>(call, image, column, filter, strip);
  }
}

void AnyImage(const ConvPoolCall& call, int64_t image, const float* planes) {
  const ConvPoolShape& s = call.shape;
  const int64_t stride = row_floats(s);
  for (int64_t row = 0; row < s.pooled_height(); ++row)
    for (int64_t column = 0; column < s.pooled_width(); ++column)
      for (int64_t filter = 0; filter < s.filters; filter += kFloatLanes) {
        const float* g = call.weights.taps + filter / kLanes * s.channels * kTaps * kLanes + filter % kLanes;
        Floats sums[4];
        for (int64_t i = 0; i < 4; ++i) {
          Floats sum = LoadFloats(call.weights.bias + filter);
          for (int64_t c = 0; c < s.channels; ++c) {
            const float* pixels = planes + c * plane_floats(s) + (2 * row + i / 2) * stride + 2 * column + i % 2;
            for (int64_t tap = 0; tap < kTaps; ++tap)
              sum = hn::MulAdd(
                  SetAll(pixels[tap / 3 * stride + tap % 3]), LoadFloats(g + (c * kTaps + tap) * kLanes), sum);
          }
          sums[i] = sum;
        }
        const Target target = TargetAt(call, image, row, column, filter);
        filter + kFloatLanes <= s.filters ? PoolAny<true>(sums, target) : PoolAny<false>(sums, target);
      }
}

// Whether all are numbers within `limit`.
bool AllWithin(int64_t count, const float* x, float limit) {
  const Floats bound = SetAll(limit);
  auto outside = hn::Not(hn::Le(bound, bound));
  for (int64_t i = 0; i < count; i += kFloatLanes)  // planes are multiples of 16 floats
    outside = hn::Or(outside, hn::Not(hn::Le(hn::Abs(LoadFloats(x + i)), bound)));
  return hn::AllFalse(FloatTag(), outside);
}

void ForwardImages(const ConvPoolCall& call, int64_t begin, int64_t end, float* scratch) {
  const int64_t size = image_floats(call.shape);
  std::fill_n(scratch, size, 0.0f);
  for (int64_t image = begin; image < end; ++image) {
    CopyImage(call.shape, call.x, image, scratch);
    if (AllWithin(size, scratch, call.weights.limit)) {
      FiniteImage(call, image, scratch, scratch + size);
    } else {
      AnyImage(call, image, scratch);
    }
  }
}

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
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {
HWY_EXPORT(ForwardImages);
HWY_EXPORT(WeightGradientImages);
HWY_EXPORT(InputGradientImages);
HWY_EXPORT(AddRows);

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

int64_t scratch_floats(const ConvPoolShape& s) { return image_floats(s) + strip_floats(s); }
}  // namespace

size_t conv_pool_workspace(const ConvPoolShape& s, int threads) {
  const int64_t forward = weight_floats(s) + threads * scratch_floats(s);
  const int64_t weights = groups(s) * sum_floats(s) + threads * gradient_scratch_floats(s);
  const int64_t input = threads * gradient_floats(s);
  return static_cast<size_t>(std::max({forward, weights, input})) * sizeof(float);
}

void conv_pool_forward(const ConvPoolShape& s, const ConvPoolImages& x, const float* weight, const float* bias,
    float* y, uint8_t* which, std::byte* workspace, ThreadPool& pool) {
  const int64_t filters = padded_filters(s);
  float* sums = reinterpret_cast<float*>(workspace);
  float* taps = sums + filters * s.channels * kSums;
  float* packed_bias = taps + filters * s.channels * kTaps;
  float* scratch = packed_bias + filters;
  for_ranges(pool, filters, s.channels * (kSums + kTaps), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) pack_filter(s, weight, o, sums, taps);
  });
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
    const int64_t parts = slopes.dy ? 1 : (end - begin + kProductImages - 1) / kProductImages;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t from = begin + part * (end - begin) / parts, to = begin + (part + 1) * (end - begin) / parts;
      if (!slopes.dy) {
        dense_head_input_gradient_rows(product, slopes.factor, slopes.weight, from, to, dy);
        call.dy = dy, call.dy_image = from;
      }
      HWY_DYNAMIC_DISPATCH(WeightGradientImages)(call, from, to, image, sums + task * size);
    }
  });
  for_ranges(pool, size / kLanes, tasks * kLanes, [&](int64_t begin, int64_t end) {
    float* first = sums + begin * kLanes;
    HWY_DYNAMIC_DISPATCH(AddRows)(tasks, size, (end - begin) * kLanes, first, false, first);
  });
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
}  // namespace linnet
#endif
