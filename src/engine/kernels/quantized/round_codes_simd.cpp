#include <cmath>
#include <cstring>
#include <limits>
#include "engine/kernels/quantized/round_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/quantized/round_codes_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

constexpr int kColumns = 16;  // whose errors are added up side by side, on every instruction set
constexpr int kVectors = kColumns / kFloatLanes;

float round_codes(const float* w, int64_t count, float scale, float low, float high, int8_t* codes) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const hn::Rebind<int8_t, FloatTag> d8;
  // What is added to 1.5 * 2^23 is rounded to an integer, ties to even.
  const Floats inverse = SetAll(1 / scale), least = SetAll(low), most = SetAll(high), magic = SetAll(12582912.0f);
  Floats errors[kVectors];
  for (Floats& error : errors) error = hn::Zero(d);
  const auto round = [&](const float* from, int8_t* to) HWY_ATTR {
    for (int v = 0; v < kVectors; ++v) {
      const Floats x = hn::Mul(hn::LoadU(d, from + v * kFloatLanes), inverse);
      const Floats code = hn::Sub(hn::Add(hn::Min(hn::Max(x, least), most), magic), magic), missed = hn::Sub(code, x);
      errors[v] = hn::Add(errors[v], hn::Mul(missed, missed));
      hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, code)), d8, to + v * kFloatLanes);
    }
  };
  int64_t i = 0;
  for (; i + kColumns <= count; i += kColumns) round(w + i, codes + i);
  if (i < count) {
    float from[kColumns] = {};
    int8_t to[kColumns];
    std::memcpy(from, w + i, static_cast<size_t>(count - i) * sizeof(float));
    round(from, to);
    std::memcpy(codes + i, to, static_cast<size_t>(count - i));
  }
  HWY_ALIGN float columns[kColumns];
  for (int v = 0; v < kVectors; ++v) hn::Store(errors[v], d, columns + v * kFloatLanes);
  float sum = 0;
  for (const float column : columns) sum += column;
  return sum;
}

// Four numbers of each of some columns become a word of each.
void round_columns(const float* w, int64_t stride, int64_t columns, int64_t depth, float most, int8_t* codes,
                   float* scales, int32_t* sums) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto magnitude = hn::Set(di, 0x7fffffff);
  for (int64_t first = 0; first < kColumns; first += kFloatLanes) {
    const int64_t left = columns - first;
    const auto load = [=](int64_t k) HWY_ATTR {
      const float* from = w + k * stride + first;
      return left >= kFloatLanes ? hn::LoadU(d, from) : left > 0 ? LoadPart(from, left) : hn::Zero(d);
    };
    auto top_bits = hn::Zero(di);  // as integers magnitudes have the order of their values, NaN above infinity
    for (int64_t k = 0; k < depth; ++k) top_bits = hn::Max(top_bits, hn::And(hn::BitCast(di, load(k)), magnitude));
    const Floats top = hn::BitCast(d, top_bits), scale = hn::Mul(top, SetAll(1 / most));
    const auto is_large = hn::Ge(top, SetAll(1e-30f)), is_number = hn::Lt(top, SetAll(HUGE_VALF));
    const auto rounds = hn::And(is_large, is_number);
    const Floats inverse = hn::Div(SetAll(1), scale), limit = SetAll(most), magic = SetAll(12582912.0f);
    auto sum = hn::Zero(di);
    for (int64_t k = 0; k < (depth + 31) / 32 * 32; k += 4) {
      auto word = hn::Zero(di);
      for (int64_t t = 3; t >= 0; --t) {
        const Floats x = k + t < depth ? hn::IfThenElseZero(rounds, hn::Mul(load(k + t), inverse)) : hn::Zero(d);
        const auto bits = hn::BitCast(di, hn::Add(hn::Min(hn::Max(x, hn::Neg(limit)), limit), magic));
        sum = hn::Add(sum, hn::Sub(bits, hn::BitCast(di, magic)));
        word = hn::Or(hn::ShiftLeft<8>(word), hn::And(bits, hn::Set(di, 0xff)));
      }
      hn::StoreU(word, di, reinterpret_cast<int32_t*>(codes) + k / 4 * kColumns + first);
    }
    const Floats not_number = SetAll(std::numeric_limits<float>::quiet_NaN());
    hn::StoreU(hn::IfThenElse(is_number, hn::IfThenElseZero(is_large, scale), not_number), d, scales + first);
    hn::StoreU(sum, di, sums + first);
  }
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(round_codes);
HWY_EXPORT(round_columns);

float round_codes(const float* w, int64_t count, float scale, float low, float high, int8_t* codes) {
  return HWY_DYNAMIC_DISPATCH(round_codes)(w, count, scale, low, high, codes);
}

void round_columns(const float* w, int64_t stride, int64_t columns, int64_t depth, float most, int8_t* codes,
                   float* scales, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(round_columns)(w, stride, columns, depth, most, codes, scales, sums);
}

}  // namespace linnet
#endif
