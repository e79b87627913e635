// Rows of floats, vector by vector, and their ragged ends. Included by *_simd.cpp after "hwy/foreach_target.h".
#if defined(LINNET_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_LANES_INL_H_
#undef LINNET_KERNELS_LANES_INL_H_
#else
#define LINNET_KERNELS_LANES_INL_H_
#endif

#include <cstdint>
#include "engine/kernels/stored_floats-inl.h"

// For lambdas in kernels: the instruction set of the enclosing function, and inlined into it.
#ifndef LINNET_LAMBDA
#define LINNET_LAMBDA HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
HWY_INLINE Floats SetAll(float x) { return hn::Set(FloatTag(), x); }
HWY_INLINE float SumLanes(Floats x) { return hn::GetLane(hn::SumOfLanes(FloatTag(), x)); }

// A position in a row: a whole vector of elements, or the ragged end. A kernel's body is written once, for both, and
// for rows of float or Bfloat16. A row of StoredFloats costs a branch for every vector, which is well predicted: for
// where the types of the operands mix.
struct WholeLanes {
  int64_t first;
  template <class T>
  HWY_INLINE Floats load(const T* row, float = 0.0f) const {
    return LoadFloats(row + first);
  }
  template <class T>
  HWY_INLINE void store(Floats x, T* row) const {
    StoreFloats(x, row + first);
  }
  HWY_INLINE Floats load(StoredFloats row, float = 0.0f) const {
    return row.is_bf16 ? load(row.bf16()) : load(row.f32());
  }
  HWY_INLINE void store(Floats x, MutableStoredFloats row) const {
    row.is_bf16 ? store(x, row.bf16()) : store(x, row.f32());
  }
};
struct PartLanes {
  int64_t first, count;
  template <class T>
  HWY_INLINE Floats load(const T* row, float filler = 0.0f) const {
    return LoadPart(row + first, count, filler);
  }
  template <class T>
  HWY_INLINE void store(Floats x, T* row) const {
    StorePart(x, row + first, count);
  }
  HWY_INLINE Floats load(StoredFloats row, float filler = 0.0f) const {
    return row.is_bf16 ? load(row.bf16(), filler) : load(row.f32(), filler);
  }
  HWY_INLINE void store(Floats x, MutableStoredFloats row) const {
    row.is_bf16 ? store(x, row.bf16()) : store(x, row.f32());
  }
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
