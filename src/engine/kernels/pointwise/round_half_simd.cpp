#include "engine/kernels/parallel.h"
#include "engine/kernels/pointwise/round_half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/pointwise/round_half_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

HWY_INLINE Floats RoundToHalf(Floats x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto number = [&](int32_t bits) LINNET_LAMBDA { return hn::Set(di, bits); };
  constexpr int32_t kLeastNormal = 0x38800000, kMost = 0x477fe000, kInfinity = 0x7f800000;  // 2^-14, 65504
  const Floats magnitude = hn::Abs(x), half = SetAll(0.5f);
  const auto bits = hn::BitCast(di, magnitude);
  // The 13 bits that fp16 has not are rounded away, ties to even. Of a float in [0.5, 1) the last bit is 2^-24.
  const auto odd = hn::And(hn::ShiftRight<13>(bits), number(1));
  const auto normal = hn::And(hn::Add(hn::Add(bits, number(0xfff)), odd), number(~0x1fff));
  const auto small = hn::BitCast(di, hn::Sub(hn::Add(magnitude, half), half));
  auto rounded = hn::IfThenElse(hn::Lt(bits, number(kLeastNormal)), small, normal);
  rounded = hn::IfThenElse(hn::Gt(rounded, number(kMost)), number(kInfinity), rounded);
  rounded = hn::IfThenElse(hn::Gt(bits, number(kInfinity)), bits, rounded);  // NaN
  return hn::CopySign(hn::BitCast(d, rounded), x);
}

void RoundToHalfRange(const float* from, float* to, int64_t begin, int64_t end) {
  ForRow(end - begin, [&](const auto& at) LINNET_LAMBDA { at.store(RoundToHalf(at.load(from + begin)), to + begin); });
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(RoundToHalfRange);

}  // namespace

void round_to_half(int64_t n, const float* from, float* to, ThreadPool& pool) {
  for_ranges(pool, n, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RoundToHalfRange)(from, to, begin, end);
  });
}

}  // namespace linnet
#endif
