// Philox4x32-10 on vectors; the contract and the meaning of the counter are in kernels/philox.h.
// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_PHILOX_INL_H_
#undef LINNET_KERNELS_PHILOX_INL_H_
#else
#define LINNET_KERNELS_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

// 16-bit values that one PhiloxKeep16 writes: eight for every 32-bit lane.
constexpr size_t kPhiloxValues = 8 * (HWY_MAX_BYTES / sizeof(uint32_t));

// values[8 * i ..] = the eight 16-bit values of counter {first_block + i, c1, c2, c3} for i in [0, Lanes(u32)), which
// is kPhiloxValues values. To keep an element, compare its value with dropout_threshold(p): kept when value >=
// threshold.
//
// Even and odd blocks live in two vectors of 64-bit lanes. MulEven reads the low half of a lane and fills all of it, so
// the low word of a product needs no work (the garbage above it is never read) and the high word is one shift.
HWY_INLINE void PhiloxKeep16(uint32_t first_block, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key,
                             uint16_t* HWY_RESTRICT values) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<uint32_t> d32;
  const hn::Repartition<uint64_t, decltype(d32)> d64;
  using V = hn::Vec<decltype(d64)>;
  const auto mul = [d32](V a, uint32_t m) HWY_ATTR { return hn::MulEven(hn::BitCast(d32, a), hn::Set(d32, m)); };

  const V lane = hn::Iota(d64, 0);
  V even[4] = {hn::Add(hn::Set(d64, first_block), hn::Add(lane, lane)), hn::Set(d64, c1), hn::Set(d64, c2),
               hn::Set(d64, c3)};
  V odd[4] = {hn::Add(even[0], hn::Set(d64, 1)), even[1], even[2], even[3]};
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
    const V k0 = hn::Set(d64, key0), k1 = hn::Set(d64, key1);
    for (V* x : {even, odd}) {
      const V p0 = mul(x[0], 0xD2511F53u), p1 = mul(x[2], 0xCD9E8D57u);
      x[0] = hn::Xor3(hn::ShiftRight<32>(p1), x[1], k0);
      x[1] = p1;
      x[2] = hn::Xor3(hn::ShiftRight<32>(p0), x[3], k1);
      x[3] = p0;
    }
  }
  hn::Vec<decltype(d32)> words[4];
  for (int w = 0; w < 4; ++w)
    words[w] = hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(odd[w])), hn::BitCast(d32, even[w]));
  hn::StoreInterleaved4(words[0], words[1], words[2], words[3], d32, reinterpret_cast<uint32_t*>(values));
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

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
