// Philox4x32-10 on vectors; engine/kernels/random/philox.h has the contract and the meaning of the counter.
#include <hwy/highway.h>
#include <cstdint>
#include <cstring>
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/random/philox.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 16-bit values that one PhiloxKeep16 writes: eight per 32-bit lane.
constexpr size_t kPhiloxValues = 8 * (HWY_MAX_BYTES / sizeof(uint32_t));

using PhiloxTag = hn::ScalableTag<uint64_t>;
using PhiloxLanes = hn::Vec<PhiloxTag>;

// One counter in every 64-bit lane, its four words in four vectors. MulEven reads the low half of a lane and fills all
// of it, so a product's low word needs no work (the bits above it are never read) and its high word one shift.
struct PhiloxCounters {
  PhiloxLanes x0, x1, x2, x3;
  // Implicit constructors have no target attribute, which NEON's vectors need.
  HWY_INLINE PhiloxCounters() {}
  HWY_INLINE PhiloxCounters(PhiloxLanes a, PhiloxLanes b, PhiloxLanes c, PhiloxLanes d) : x0(a), x1(b), x2(c), x3(d) {}

  HWY_INLINE void round(PhiloxLanes key0, PhiloxLanes key1) {
    const hn::Repartition<uint32_t, PhiloxTag> d32;
    const PhiloxLanes p0 = hn::MulEven(hn::BitCast(d32, x0), hn::Set(d32, 0xD2511F53u));
    const PhiloxLanes p1 = hn::MulEven(hn::BitCast(d32, x2), hn::Set(d32, 0xCD9E8D57u));
    x0 = hn::Xor3(hn::ShiftRight<32>(p1), x1, key0);
    x1 = p1;
    x2 = hn::Xor3(hn::ShiftRight<32>(p0), x3, key1);
    x3 = p0;
  }
};

struct PhiloxOutput {
  hn::Vec<hn::Repartition<uint32_t, PhiloxTag>> w0, w1, w2, w3;
};

// The four words of the counters even[0], odd[0], even[1], odd[1], ..., in that order.
HWY_INLINE PhiloxOutput PhiloxWords(PhiloxCounters even, PhiloxCounters odd, uint64_t key) {
  const PhiloxTag d64;
  const hn::Repartition<uint32_t, PhiloxTag> d32;
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
    const PhiloxLanes k0 = hn::Set(d64, key0), k1 = hn::Set(d64, key1);
    even.round(k0, k1);
    odd.round(k0, k1);
  }
  const auto join = [d32](PhiloxLanes low, PhiloxLanes high) HWY_ATTR {
    return hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(high)), hn::BitCast(d32, low));
  };
  return {join(even.x0, odd.x0), join(even.x1, odd.x1), join(even.x2, odd.x2), join(even.x3, odd.x3)};
}

// values[8 * i ..] = the eight 16-bit values of counter {first_block + i, c1, c2, c3} for i in [0, Lanes(u32)), which
// is kPhiloxValues values. An element is kept if its value >= dropout_threshold(p).
HWY_INLINE void PhiloxKeep16(
    uint32_t first_block, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key, uint16_t* HWY_RESTRICT values) {
  const PhiloxTag d64;
  const PhiloxLanes lane = hn::Iota(d64, 0), first = hn::Add(hn::Set(d64, first_block), hn::Add(lane, lane));
  const PhiloxCounters even{first, hn::Set(d64, c1), hn::Set(d64, c2), hn::Set(d64, c3)};
  const PhiloxCounters odd{hn::Add(first, hn::Set(d64, 1)), even.x1, even.x2, even.x3};
  const PhiloxOutput words = PhiloxWords(even, odd, key);
  hn::StoreInterleaved4(words.w0, words.w1, words.w2, words.w3, hn::Repartition<uint32_t, PhiloxTag>(),
      reinterpret_cast<uint32_t*>(values));
}

// The same for `blocks` consecutive blocks: 8 * blocks values, nothing written past them.
HWY_INLINE void PhiloxRow16(uint32_t first_block, int64_t blocks, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key,
    uint16_t* HWY_RESTRICT values) {
  constexpr int64_t step = kPhiloxValues / 8;
  for (; blocks >= step; blocks -= step, first_block += step, values += kPhiloxValues)
    PhiloxKeep16(first_block, c1, c2, c3, key, values);
  if (blocks > 0) {
    HWY_ALIGN uint16_t rest[kPhiloxValues];
    PhiloxKeep16(first_block, c1, c2, c3, key, rest);
    std::memcpy(values, rest, static_cast<size_t>(blocks) * 8 * sizeof(uint16_t));
  }
}

// Dropout of vectors, by such values.
class DropoutLanes {
 public:
  HWY_INLINE explicit DropoutLanes(float p)
      : limit_(hn::Set(IntTag(), static_cast<int32_t>(dropout_threshold(p)))), factor_(SetAll(dropout_scale(p))) {}
  HWY_INLINE Floats apply(Floats x, const uint16_t* values) const {
    const auto value = hn::PromoteTo(IntTag(), hn::LoadU(hn::Rebind<uint16_t, FloatTag>(), values));
    return hn::IfThenZeroElse(hn::RebindMask(FloatTag(), hn::Lt(value, limit_)), hn::Mul(x, factor_));
  }

 private:
  hn::Vec<IntTag> limit_;
  Floats factor_;
};
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
