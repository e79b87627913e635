#include <algorithm>
#include <cstring>
#include "engine/kernels/parallel.h"
#include "engine/kernels/quantized/round_bf16.h"
#include "engine/kernels/random/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/quantized/round_bf16_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/random/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

// One block of kPhiloxValues numbers.
void RoundBlock(const float* HWY_RESTRICT x, const uint16_t* HWY_RESTRICT random, uint16_t* HWY_RESTRICT y) {
  const hn::Rebind<uint32_t, FloatTag> du;
  const hn::Rebind<int32_t, FloatTag> di;
  const hn::Rebind<uint16_t, FloatTag> half;
  const auto exponent = hn::Set(du, 0x7f800000u), quiet = hn::Set(du, 0x00400000u);
  for (size_t i = 0; i < kPhiloxValues; i += hn::Lanes(du)) {
    const auto bits = hn::BitCast(du, hn::LoadU(FloatTag(), x + i));
    const auto moved = hn::Add(bits, hn::PromoteTo(du, hn::LoadU(half, random + i)));
    const auto is_finite = hn::Ne(hn::And(bits, exponent), exponent);
    // Of NaN the upper half alone could be infinity.
    const auto is_infinite = hn::Eq(hn::AndNot(hn::Set(du, 0x80000000u), bits), exponent);
    const auto special = hn::IfThenElse(is_infinite, bits, hn::Or(bits, quiet));
    const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_finite, moved, special));
    hn::StoreU(hn::DemoteTo(half, hn::BitCast(di, upper)), half, y + i);
  }
}

// Numbers [begin, end), begin a multiple of 8.
void RoundRange(int64_t begin, int64_t end, const float* x, uint16_t* y, uint64_t key) {
  HWY_ALIGN uint16_t random[kPhiloxValues];
  for (int64_t first = begin; first < end; first += kPhiloxValues) {
    PhiloxKeep16(static_cast<uint32_t>(first / 8), kBf16Rounding, 0, 0, key, random);
    const int64_t count = std::min<int64_t>(kPhiloxValues, end - first);
    if (count == static_cast<int64_t>(kPhiloxValues)) {
      RoundBlock(x + first, random, y + first);
      continue;
    }
    HWY_ALIGN float rest[kPhiloxValues] = {};
    HWY_ALIGN uint16_t rounded[kPhiloxValues];
    std::copy_n(x + first, count, rest);
    RoundBlock(rest, random, rounded);
    std::copy_n(rounded, count, y + first);
  }
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(RoundRange);

void round_to_bf16_stochastic(int64_t count, const float* x, uint16_t* y, uint64_t key, ThreadPool& pool) {
  if (count <= 0) return;
  constexpr int64_t piece = 4096;  // a whole number of Philox blocks, in any vector length
  for_ranges(pool, (count + piece - 1) / piece, 2 * piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RoundRange)(begin * piece, std::min(count, end * piece), x, y, key);
  });
}

uint16_t round_to_bf16_by(float x, uint16_t r) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const bool is_finite = (bits & 0x7f800000u) != 0x7f800000u, is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  if (is_finite) bits += r;
  if (is_nan) bits |= 0x00400000u;
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace linnet
#endif
