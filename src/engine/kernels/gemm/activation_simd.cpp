// Activation functions that epilogues call instead of inlining them.
#include <algorithm>
#include "engine/kernels/gemm/activation.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/gemm/activation_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/gemm/gemm_epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {
namespace {
// As in ops/pointwise: NaN if x is.
HWY_INLINE Floats Least(Floats x, Floats y) { return hn::IfThenElse(hn::Or(hn::Lt(x, y), hn::IsNaN(x)), x, y); }
HWY_INLINE Floats Largest(Floats x, Floats y) { return hn::IfThenElse(hn::Or(hn::Gt(x, y), hn::IsNaN(x)), x, y); }

struct Silu {
  static HWY_INLINE Floats Value(Floats x) { return hn::Mul(x, Sigmoid(x)); }
};
struct HardSwish {
  static HWY_INLINE Floats Value(Floats x) {
    const Floats line = hn::Add(hn::Mul(x, SetAll(static_cast<float>(1.0 / 6))), SetAll(0.5f));
    return hn::Mul(x, Largest(SetAll(0), Least(SetAll(1), line)));
  }
};
struct Relu6 {
  static HWY_INLINE Floats Value(Floats x) { return Least(Largest(x, SetAll(0)), SetAll(6)); }
};

template <class Visit> HWY_INLINE void VisitActivation(GemmActivation activation, const Visit& visit) {
  switch (activation) {
    case GemmActivation::kGelu: return visit(Gelu());
    case GemmActivation::kGeluTanh: return visit(GeluTanh());
    case GemmActivation::kSilu: return visit(Silu());
    case GemmActivation::kHardSwish: return visit(HardSwish());
    default: return visit(Relu6());
  }
}
}  // namespace

void ActivateRows(GemmActivation activation, int64_t rows, int64_t columns, MutableStoredFloats first, int64_t stride) {
  const int64_t whole = first.is_bf16 ? 0 : columns / kFloatLanes * kFloatLanes;
  for (int64_t r = 0; r < rows; ++r, first = first + stride) {
    if (whole > 0)
      VisitActivation(activation, [&]<class F>(F) LINNET_LAMBDA {
        float* const row = first.f32();
        for (int64_t i = 0; i < whole; i += kFloatLanes) StoreFloats(F::Value(LoadFloats(row + i)), row + i);
      });
    for (int64_t i = whole; i < columns; i += kFloatLanes) {
      const PartLanes at{i, std::min<int64_t>(kFloatLanes, columns - i)};
      Floats x = at.load(StoredFloats(first));
      VisitActivation(activation, [&]<class F>(F) LINNET_LAMBDA { x = F::Value(x); });
      at.store(x, first);
    }
  }
}
}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();
