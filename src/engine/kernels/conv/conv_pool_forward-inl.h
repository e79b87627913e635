// The pooled convolution: images with zeros around them, and the forward pass.
#include <algorithm>
#include "engine/kernels/conv/pool.h"
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
using namespace conv_pool_layout;

using Words = hn::Rebind<uint32_t, FloatTag>;

HWY_INLINE Floats FloatsOfBytes(const uint8_t* p, Floats scale, Floats shift) {
  return hn::MulAdd(hn::ConvertTo(FloatTag(), hn::PromoteTo(IntTag(), hn::LoadU(ByteTag(), p))), scale, shift);
}

// Row `row` of an image, channel `channel`, to out [width].
HWY_INLINE void CopyRow(const ConvPoolShape& s, const ConvPoolImages& x, int64_t row, int64_t channel, float* out) {
  const int64_t first = row * s.width * s.channels + channel;
  if (s.channels > 1 || (x.bytes && s.width < kFloatLanes)) {
    for (int64_t j = 0; j < s.width; ++j) {
      const int64_t location = first + j * s.channels;
      out[j] =
          x.bytes ? static_cast<float>(x.bytes[location]) * x.scale[channel] + x.shift[channel] : x.floats[location];
    }
    return;
  }
  if (!x.bytes) return std::copy_n(x.floats + first, s.width, out), void();
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
    if (AllWithin(size, scratch, call.weights.limit)) FiniteImage(call, image, scratch, scratch + size);
    else AnyImage(call, image, scratch);
  }
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
