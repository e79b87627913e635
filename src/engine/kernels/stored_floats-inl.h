// Vectors of float and how they lie in memory: as fp32 or as bf16 (engine/kernels/stored_floats.h). A load widens,
// which is exact; a store rounds as round_to_bf16 (engine/kernels/precision.h), in the same bits on every instruction
// set. Included by
// *_simd.cpp after "hwy/foreach_target.h".
#if defined(LINNET_KERNELS_STORED_FLOATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_STORED_FLOATS_INL_H_
#undef LINNET_KERNELS_STORED_FLOATS_INL_H_
#else
#define LINNET_KERNELS_STORED_FLOATS_INL_H_
#endif

#include <hwy/highway.h>
#include <cstdint>
#include <cstring>
#include "engine/kernels/stored_floats.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;
constexpr int64_t kFloatLanes = HWY_MAX_BYTES / sizeof(float);

// Highway's MaskedLoad and BlendedStore demand alignment on SSE and slower targets, and for 16 bits on AVX2 they touch
// what is masked; there, parts of vectors go through memory.
constexpr bool kMasks16Bits = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL;
constexpr bool kMasks32Bits = kMasks16Bits || HWY_TARGET == HWY_AVX2;

HWY_INLINE Floats LoadFloats(const float* p) { return hn::LoadU(FloatTag(), p); }
HWY_INLINE void StoreFloats(Floats x, float* p) { hn::StoreU(x, FloatTag(), p); }

// The first `count` floats (fewer than a vector), then `filler`.
HWY_INLINE Floats LoadPart(const float* p, int64_t count, float filler = 0.0f) {
  const FloatTag d;
  if constexpr (kMasks32Bits) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(count));
    return hn::IfThenElse(mask, hn::MaskedLoad(mask, d, p), hn::Set(d, filler));
  } else {
    HWY_ALIGN float lanes[kFloatLanes];
    hn::Store(hn::Set(d, filler), d, lanes);
    std::memcpy(lanes, p, static_cast<size_t>(count) * sizeof(float));
    return hn::Load(d, lanes);
  }
}

// Stores the first `count` floats (fewer than a vector) and touches nothing after them.
HWY_INLINE void StorePart(Floats x, float* p, int64_t count) {
  const FloatTag d;
  if constexpr (kMasks32Bits) {
    hn::BlendedStore(x, hn::FirstN(d, static_cast<size_t>(count)), d, p);
  } else {
    HWY_ALIGN float lanes[kFloatLanes];
    hn::Store(x, d, lanes);
    std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(float));
  }
}

using Bf16Tag = hn::Rebind<uint16_t, FloatTag>;  // as many lanes as Floats has
using Bf16Bits = hn::Vec<Bf16Tag>;

HWY_INLINE const uint16_t* Bits(const Bfloat16* p) { return reinterpret_cast<const uint16_t*>(p); }
HWY_INLINE uint16_t* Bits(Bfloat16* p) { return reinterpret_cast<uint16_t*>(p); }

HWY_INLINE Floats Widen(Bf16Bits x) {
  const hn::RebindToUnsigned<FloatTag> du;
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(du, x)));
}

// To the nearest, ties to even; denormals to zero; NaN stays NaN. Highway's own demotion truncates on some targets.
//
// AVX-512's instruction is an extension that not all processors with AVX-512 have, nor Highway a target for. Written as
// assembly it needs none, and the branch costs less than the ten instructions that it saves.
HWY_INLINE Bf16Bits RoundToBf16(Floats x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if (HWY_LIKELY(kProcessorRoundsToBf16)) {
    __m256i bits;
    asm("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(x.raw));
    return Bf16Bits{bits};
  }
#endif
  const hn::RebindToUnsigned<FloatTag> du;
  const hn::RebindToSigned<FloatTag> di;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto is_small = hn::Eq(hn::And(bits, hn::Set(du, 0x7f800000u)), hn::Zero(du));
  rounded = hn::IfThenElse(is_small, hn::And(bits, hn::Set(du, 0x80000000u)), rounded);
  rounded = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), hn::Or(bits, hn::Set(du, 0x00400000u)), rounded);
  return hn::DemoteTo(Bf16Tag(), hn::BitCast(di, hn::ShiftRight<16>(rounded)));  // no value is out of range
}

HWY_INLINE Floats LoadFloats(const Bfloat16* p) { return Widen(hn::LoadU(Bf16Tag(), Bits(p))); }
HWY_INLINE void StoreFloats(Floats x, Bfloat16* p) { hn::StoreU(RoundToBf16(x), Bf16Tag(), Bits(p)); }

HWY_INLINE Floats LoadPart(const Bfloat16* p, int64_t count, float filler = 0.0f) {
  const FloatTag d;
  const Bf16Tag d16;
  Bf16Bits bits;
  if constexpr (kMasks16Bits) {
    bits = hn::MaskedLoad(hn::FirstN(d16, static_cast<size_t>(count)), d16, Bits(p));
  } else {
    HWY_ALIGN uint16_t lanes[kFloatLanes] = {};
    std::memcpy(lanes, p, static_cast<size_t>(count) * sizeof(Bfloat16));
    bits = hn::Load(d16, lanes);
  }
  return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count)), Widen(bits), hn::Set(d, filler));
}

HWY_INLINE void StorePart(Floats x, Bfloat16* p, int64_t count) {
  const Bf16Tag d16;
  if constexpr (kMasks16Bits) {
    hn::BlendedStore(RoundToBf16(x), hn::FirstN(d16, static_cast<size_t>(count)), d16, Bits(p));
  } else {
    HWY_ALIGN uint16_t lanes[kFloatLanes];
    hn::Store(RoundToBf16(x), d16, lanes);
    std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(Bfloat16));
  }
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
