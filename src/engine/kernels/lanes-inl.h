// Vectors of float, loaded and stored as fp32 or bf16 (stored_floats.h), and rows of them with partial ends. A load
// widens exactly; a store rounds like round_to_bf16 (precision.h), with the same bits on every instruction set. As
// every *-inl.h it is included by *_simd.cpp after "hwy/foreach_target.h", once per instruction set. Those that other
// *-inl.h include more than once have Highway's guard (HWY_TARGET_TOGGLE).
#if defined(LINNET_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_LANES_INL_H_
#undef LINNET_KERNELS_LANES_INL_H_
#else
#define LINNET_KERNELS_LANES_INL_H_
#endif

#include <hwy/highway.h>
#include <cstdint>
#include <cstring>
#include "engine/kernels/stored_floats.h"

// For lambdas in kernels: inlined, with the enclosing function's instruction set.
#ifndef LINNET_LAMBDA
#define LINNET_LAMBDA HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;
constexpr int64_t kFloatLanes = HWY_MAX_BYTES / sizeof(float);
using IntTag = hn::RebindToSigned<FloatTag>;
using ByteTag = hn::Rebind<uint8_t, FloatTag>;
using ByteLanes = hn::Vec<ByteTag>;

// Highway's MaskedLoad and BlendedStore need alignment on SSE and slower targets, and for 16 bits on AVX2 they touch
// masked memory; there, parts of vectors go through memory.
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

// To the nearest, ties to even; denormals to zero; NaN stays NaN. Highway's own demotion truncates on some targets. Not
// all processors with AVX-512 have the instruction, nor has Highway a target for it: as assembly it needs none, and the
// branch costs less than the ten instructions it saves.
HWY_INLINE Bf16Bits RoundToBf16(Floats x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if (HWY_LIKELY(kProcessorRoundsToBf16)) {
    __m256i bits;
    asm("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(x.raw));
    return Bf16Bits{bits};
  }
#endif
  const hn::RebindToUnsigned<FloatTag> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto is_small = hn::Eq(hn::And(bits, hn::Set(du, 0x7f800000u)), hn::Zero(du));
  rounded = hn::IfThenElse(is_small, hn::And(bits, hn::Set(du, 0x80000000u)), rounded);
  rounded = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), hn::Or(bits, hn::Set(du, 0x00400000u)), rounded);
  return hn::DemoteTo(Bf16Tag(), hn::BitCast(IntTag(), hn::ShiftRight<16>(rounded)));  // no value is out of range
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

HWY_INLINE Floats SetAll(float x) { return hn::Set(FloatTag(), x); }
HWY_INLINE Floats FloatsOf(const int32_t* p) { return hn::ConvertTo(FloatTag(), hn::LoadU(IntTag(), p)); }
HWY_INLINE Floats Relu(Floats x) { return hn::IfThenZeroElse(hn::Lt(x, SetAll(0)), x); }  // a NaN is not < 0: it stays
HWY_INLINE float SumLanes(Floats x) { return hn::GetLane(hn::SumOfLanes(FloatTag(), x)); }

// A position in a row: a whole vector, or the partial end. A kernel's body is written once for both, and for rows of
// float or Bfloat16. For mixed types, a row of StoredFloats costs a well-predicted branch per vector.
template <bool kWhole> struct LanesAt {
  int64_t first, count = kFloatLanes;

  template <class T> HWY_INLINE Floats load(const T* row, float filler = 0.0f) const {
    if constexpr (kWhole) return LoadFloats(row + first);
    else return LoadPart(row + first, count, filler);
  }
  template <class T> HWY_INLINE void store(Floats x, T* row) const {
    if constexpr (kWhole) StoreFloats(x, row + first);
    else StorePart(x, row + first, count);
  }
  HWY_INLINE Floats load(StoredFloats row, float filler = 0.0f) const {
    return row.is_bf16 ? load(row.bf16(), filler) : load(row.f32(), filler);
  }
  HWY_INLINE void store(Floats x, MutableStoredFloats row) const {
    row.is_bf16 ? store(x, row.bf16()) : store(x, row.f32());
  }

  HWY_INLINE ByteLanes load_bytes(const uint8_t* row) const {
    if constexpr (kWhole) return hn::LoadU(ByteTag(), row + first);
    HWY_ALIGN uint8_t lanes[kFloatLanes] = {};
    std::memcpy(lanes, row + first, static_cast<size_t>(count));
    return hn::Load(ByteTag(), lanes);
  }
  HWY_INLINE void store_bytes(ByteLanes x, uint8_t* row) const {
    if constexpr (kWhole) return hn::StoreU(x, ByteTag(), row + first);
    HWY_ALIGN uint8_t lanes[kFloatLanes];
    hn::Store(x, ByteTag(), lanes);
    std::memcpy(row + first, lanes, static_cast<size_t>(count));
  }
};
using WholeLanes = LanesAt<true>;
using PartLanes = LanesAt<false>;

HWY_INLINE int32_t FourBytes(const void* from) {
  int32_t four;
  std::memcpy(&four, from, sizeof four);
  return four;
}

// visit.operator()<N>() for N = n in [1, kMost].
template <int kMost, class Visit> HWY_INLINE void WithConstant(int64_t n, const Visit& visit) {
  if constexpr (kMost > 1)
    if (n < kMost) return WithConstant<kMost - 1>(n, visit);
  visit.template operator()<kMost>();
}

// body(position) for all of a row of `width` elements, or from element i on.
template <class Body> HWY_INLINE void ForRow(int64_t width, const Body& body, int64_t i = 0) {
  for (; i + kFloatLanes <= width; i += kFloatLanes) body(WholeLanes{i});
  if (i < width) body(PartLanes{i, width - i});
}

// Folds term(position) over a row into one vector. Four accumulators hide latency; the order depends on the width
// alone. Lanes past the width are folded too: `term` must load a harmless filler.
template <class Term, class Fold>
HWY_INLINE Floats FoldRow(int64_t width, float start, const Term& term, const Fold& fold) {
  Floats s0 = SetAll(start), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * kFloatLanes <= width; i += 4 * kFloatLanes) {
    s0 = fold(s0, term(WholeLanes{i}));
    s1 = fold(s1, term(WholeLanes{i + kFloatLanes}));
    s2 = fold(s2, term(WholeLanes{i + 2 * kFloatLanes}));
    s3 = fold(s3, term(WholeLanes{i + 3 * kFloatLanes}));
  }
  for (; i + kFloatLanes <= width; i += kFloatLanes) s0 = fold(s0, term(WholeLanes{i}));
  if (i < width) s1 = fold(s1, term(PartLanes{i, width - i}));
  return fold(fold(s0, s1), fold(s2, s3));
}

template <class Term> HWY_INLINE float SumRow(int64_t width, const Term& term) {
  return SumLanes(FoldRow(width, 0.0f, term, [](Floats a, Floats b) LINNET_LAMBDA { return hn::Add(a, b); }));
}

// out (+)= the sum of `rows` rows in order, such as partial sums. Row r begins at x + r * stride.
inline void AddRows(int64_t rows, int64_t stride, int64_t width, const float* x, bool accumulate, float* out) {
  ForRow(width, [=](const auto& at) LINNET_LAMBDA {
    Floats total = at.load(x);
    for (int64_t r = 1; r < rows; ++r) total = hn::Add(total, at.load(x + r * stride));
    at.store(accumulate ? hn::Add(at.load(out), total) : total, out);
  });
}

// Of elements or squares. Double holds the square of any float, so the norm of a gradient of 1e30 does not overflow.
template <bool kSquares = false> double SumInDouble(int64_t count, const float* x) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  constexpr int64_t lanes = HWY_MAX_BYTES / sizeof(double);
  const auto add = [=](auto total, const float* p) LINNET_LAMBDA {
    const auto v = hn::PromoteTo(d, hn::LoadU(half, p));
    if constexpr (kSquares) return hn::MulAdd(v, v, total);
    else return hn::Add(v, total);
  };
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = add(s0, x + i);
    s1 = add(s1, x + i + lanes);
    s2 = add(s2, x + i + 2 * lanes);
    s3 = add(s3, x + i + 3 * lanes);
  }
  for (; i + lanes <= count; i += lanes) s0 = add(s0, x + i);
  double total = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < count; ++i) total += kSquares ? static_cast<double>(x[i]) * x[i] : x[i];
  return total;
}

// to [width] += rows [rows, width], one row after the other. Four at a time, to spare the cache.
inline void AddInDouble(int64_t rows, int64_t width, const float* x, double* to) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  constexpr int64_t lanes = HWY_MAX_BYTES / sizeof(double);
  const auto add = [=](auto sum, const float* p)
                       LINNET_LAMBDA { return hn::Add(sum, hn::PromoteTo(d, hn::LoadU(half, p))); };
  for (int64_t count = 0; rows > 0; rows -= count, x += count * width) {
    count = rows < 4 ? 1 : 4;
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
      auto sum = add(hn::LoadU(d, to + i), x + i);
      if (count == 4) sum = add(add(add(sum, x + width + i), x + 2 * width + i), x + 3 * width + i);
      hn::StoreU(sum, d, to + i);
    }
    for (; i < width; ++i)
      for (int64_t row = 0; row < count; ++row) to[i] += static_cast<double>(x[row * width + i]);
  }
}
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
