#include <cstring>

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

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(round_codes);

float round_codes(const float* w, int64_t count, float scale, float low, float high, int8_t* codes) {
  return HWY_DYNAMIC_DISPATCH(round_codes)(w, count, scale, low, high, codes);
}

}  // namespace linnet
#endif
