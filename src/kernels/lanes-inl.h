// Vectors of float and their ragged ends. Included by *_simd.cpp after "hwy/foreach_target.h".
#if defined(LINNET_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_LANES_INL_H_
#undef LINNET_KERNELS_LANES_INL_H_
#else
#define LINNET_KERNELS_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

// For lambdas in kernels: the instruction set of the enclosing function, and inlined into it.
#ifndef LINNET_LAMBDA
#define LINNET_LAMBDA HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;
constexpr int64_t kFloatLanes = HWY_MAX_BYTES / sizeof(float);

HWY_INLINE Floats SetAll(float x) { return hn::Set(FloatTag(), x); }
HWY_INLINE Floats LoadFloats(const float* p) { return hn::LoadU(FloatTag(), p); }
HWY_INLINE void StoreFloats(Floats x, float* p) { hn::StoreU(x, FloatTag(), p); }

// The first `count` floats (fewer than a vector), then `filler`. Highway's MaskedLoad demands alignment on SSE and
// slower targets, so those go through memory.
HWY_INLINE Floats LoadPart(const float* p, int64_t count, float filler = 0.0f) {
  const FloatTag d;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const auto mask = hn::FirstN(d, static_cast<size_t>(count));
  return hn::IfThenElse(mask, hn::MaskedLoad(mask, d, p), hn::Set(d, filler));
#else
  HWY_ALIGN float lanes[kFloatLanes];
  hn::Store(hn::Set(d, filler), d, lanes);
  std::memcpy(lanes, p, static_cast<size_t>(count) * sizeof(float));
  return hn::Load(d, lanes);
#endif
}

// Stores the first `count` floats (fewer than a vector) and touches nothing after them.
HWY_INLINE void StorePart(Floats x, float* p, int64_t count) {
  const FloatTag d;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  hn::BlendedStore(x, hn::FirstN(d, static_cast<size_t>(count)), d, p);
#else
  HWY_ALIGN float lanes[kFloatLanes];
  hn::Store(x, d, lanes);
  std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(float));
#endif
}

HWY_INLINE float SumLanes(Floats x) { return hn::GetLane(hn::SumOfLanes(FloatTag(), x)); }

// A position in a row: a whole vector of elements, or the ragged end. A kernel's body is written once, for both.
struct WholeLanes {
  int64_t first;
  HWY_INLINE Floats load(const float* row, float = 0.0f) const { return LoadFloats(row + first); }
  HWY_INLINE void store(Floats x, float* row) const { StoreFloats(x, row + first); }
};
struct PartLanes {
  int64_t first, count;
  HWY_INLINE Floats load(const float* row, float filler = 0.0f) const { return LoadPart(row + first, count, filler); }
  HWY_INLINE void store(Floats x, float* row) const { StorePart(x, row + first, count); }
};

// body(position) for all of a row of `width` elements.
template <class Body>
HWY_INLINE void ForRow(int64_t width, const Body& body) {
  int64_t i = 0;
  for (; i + kFloatLanes <= width; i += kFloatLanes) body(WholeLanes{i});
  if (i < width) body(PartLanes{i, width - i});
}

// Folds term(position) over a row into one vector. Four accumulators run side by side to hide latency; the order
// depends on the width alone. Lanes past the width are folded too: `term` loads a filler that makes them harmless.
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

template <class Term>
HWY_INLINE float SumRow(int64_t width, const Term& term) {
  return SumLanes(FoldRow(width, 0.0f, term, [](Floats a, Floats b) LINNET_LAMBDA { return hn::Add(a, b); }));
}

// out (+)= the sum of `rows` rows, first to last: joins the partial sums of chunks. Row r begins at x + r * stride.
inline void AddRows(int64_t rows, int64_t stride, int64_t width, const float* x, bool accumulate, float* out) {
  ForRow(width, [=](const auto& at) LINNET_LAMBDA {
    Floats total = at.load(x);
    for (int64_t r = 1; r < rows; ++r) total = hn::Add(total, at.load(x + r * stride));
    at.store(accumulate ? hn::Add(at.load(out), total) : total, out);
  });
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
