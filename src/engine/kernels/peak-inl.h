// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_PEAK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_PEAK_INL_H_
#undef LINNET_KERNELS_PEAK_INL_H_
#else
#define LINNET_KERNELS_PEAK_INL_H_
#endif

#include "engine/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {

constexpr int kPeakChains = 2 * kRows;  // independent sums, as many as the register tile of a product has

// The inner loop of a product without its loads. Returns what it computed, so that it is computed.
template <class P>
HWY_NOINLINE float MultiplyAdds(int64_t rounds) {
  const hn::RebindToUnsigned<D> bits;
  const V x = hn::BitCast(d, hn::Set(bits, 0x3f803f80u));  // a float or two bf16: 1
  const V y = hn::BitCast(d, hn::Set(bits, 0x30803080u));  // 1e-9
  V r[kPeakChains];
#pragma GCC unroll 28
  for (int i = 0; i < kPeakChains; ++i) r[i] = hn::Set(d, static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 28
    for (int i = 0; i < kPeakChains; ++i) r[i] = P::MulAdd(x, y, r[i]);
  }
  V sum = r[0];
#pragma GCC unroll 28
  for (int i = 1; i < kPeakChains; ++i) sum = hn::Add(sum, r[i]);
  return hn::GetLane(sum);
}

// Operations of one round, a multiplication and an addition being two.
template <class P>
constexpr double kRoundOperations = 2.0 * P::kPair* kPeakChains* kLanes;

}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();

#endif
