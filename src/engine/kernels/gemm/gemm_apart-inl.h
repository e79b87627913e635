// What happens to sums that lie apart, because C is bf16 in memory or is computed from what is. Included by *_simd.cpp
// after "hwy/foreach_target.h".
#if defined(LINNET_KERNELS_GEMM_APART_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_GEMM_APART_INL_H_
#undef LINNET_KERNELS_GEMM_APART_INL_H_
#else
#define LINNET_KERNELS_GEMM_APART_INL_H_
#endif

#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/gemm/gemm_epilogue-inl.h"
#include "engine/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {

// What becomes of x, the finished sum. kRounds: GELU of a C in bf16 is that of x as bf16 holds it.
struct Identity {
  static constexpr bool kRounds = false, kReadsAux = false;
  static HWY_INLINE Floats Result(Floats x, Floats, Floats) { return x; }
};
struct ReluOf {
  static constexpr bool kRounds = false, kReadsAux = false;
  static HWY_INLINE Floats Result(Floats x, Floats, Floats) { return Relu(x); }
};
template <class F>
struct ActivationOf {
  static constexpr bool kRounds = true, kReadsAux = false;
  static HWY_INLINE Floats Result(Floats x, Floats, Floats) { return F::Value(x); }
};
template <class F>
struct DerivativeOf {
  static constexpr bool kRounds = false, kReadsAux = true;
  static HWY_INLINE Floats Result(Floats x, Floats aux, Floats scale) { return F::Gradient(aux, hn::Mul(x, scale)); }
};

// `rows` rows of a whole panel, of which C and all that lies beside it are bf16 in memory: a row is one store, and what
// is done to it is known to the compiler. `location`: of the first element in C.
template <class P, class F, bool kAdds>
HWY_NOINLINE void FinishPanelOf(const GemmArgs& g, const float* sums, int64_t location, int64_t column, int64_t rows) {
  const Floats scale = SetAll(g.derivative_scale);
  const bool has_bias = g.bias != nullptr;
  const Bfloat16* added = (g.accumulate ? StoredFloats(g.c) : g.residual).bf16();
  const Bfloat16* aux = g.aux.bf16();
  Bfloat16 *pre = g.pre_activation.bf16(), *c = g.c.bf16();
  V bias[2] = {hn::Zero(d), hn::Zero(d)};
  if (has_bias) bias[0] = hn::LoadU(d, g.bias + column), bias[1] = hn::LoadU(d, g.bias + column + kLanes);
  for (int64_t i = 0; i < rows; ++i, sums += kWidth, location += g.ldc) {
    V x[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      x[h] = hn::Load(d, sums + h * kLanes);
      if constexpr (kAdds) x[h] = hn::Add(x[h], LoadFloats(added + location + h * kLanes));
      if (has_bias) x[h] = hn::Add(x[h], bias[h]);
    }
    if (F::kRounds || pre != nullptr) {
      const V rounded = P::Round(x[0], x[1]);
      if (pre != nullptr) P::StoreRounded(rounded, pre + location);
      if constexpr (F::kRounds) P::SplitRounded(rounded, x[0], x[1]);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const Floats beside = F::kReadsAux ? LoadFloats(aux + location + h * kLanes) : scale;
      x[h] = F::Result(x[h], beside, scale);
    }
    P::StoreRounded(P::Round(x[0], x[1]), c + location);
  }
}

using FinishPanelFunction = void (*)(const GemmArgs&, const float*, int64_t, int64_t, int64_t);
template <class P, class F>
FinishPanelFunction finish_panel_of(const GemmArgs& g) {
  return g.accumulate || g.residual ? FinishPanelOf<P, F, true> : FinishPanelOf<P, F, false>;
}

// Null where a matrix is fp32 in memory, and for functions beyond GELU.
template <class P>
FinishPanelFunction finish_panel(const GemmArgs& g) {
  const auto in_f32 = [](StoredFloats x) { return x && !x.is_bf16; };
  if (in_f32(g.c) || in_f32(g.residual) || in_f32(g.pre_activation) || in_f32(g.aux)) return nullptr;
  switch (g.derivative) {
    default:  // none
      break;
    case GemmActivation::kRelu: return finish_panel_of<P, DerivativeOf<ReluMask>>(g);
    case GemmActivation::kGelu: return finish_panel_of<P, DerivativeOf<Gelu>>(g);
    case GemmActivation::kGeluTanh: return finish_panel_of<P, DerivativeOf<GeluTanh>>(g);
  }
  if (g.activation == GemmActivation::kRelu) return finish_panel_of<P, ReluOf>(g);
  if (g.activation == GemmActivation::kGelu) return finish_panel_of<P, ActivationOf<Gelu>>(g);
  if (g.activation == GemmActivation::kGeluTanh) return finish_panel_of<P, ActivationOf<GeluTanh>>(g);
  return g.activation == GemmActivation::kNone ? finish_panel_of<P, Identity>(g) : nullptr;
}

// The rectangle of C at (row, column) from its finished sums, whose rows are `stride` apart: all that GemmArgs says of
// x and C, in fp32, from and to memory of any type. Programs have it once, with the extensions of one of the files that
// include it: those of processors that multiply in bf16, which alone call it.
inline HWY_NOINLINE void FinishApart(const GemmArgs& g, const float* sums, int64_t stride, int64_t row, int64_t column,
                                     int64_t rows, int64_t columns) {
  const Floats scale = SetAll(g.derivative_scale), zero = hn::Zero(FloatTag());
  const float* bias = g.bias ? g.bias + column : nullptr;
  const bool rounds = g.c.is_bf16 && g.activation > GemmActivation::kRelu;
  for (int64_t i = 0; i < rows; ++i, sums += stride) {
    const int64_t location = (row + i) * g.ldc + column;
    const MutableStoredFloats c = g.c + location;
    const StoredFloats added = g.accumulate ? StoredFloats(c) : g.residual ? g.residual + location : StoredFloats();
    const StoredFloats aux = g.aux ? g.aux + location : StoredFloats();
    const MutableStoredFloats pre = g.pre_activation ? g.pre_activation + location : MutableStoredFloats();
    ForRow(columns, [=, &g](const auto& at) LINNET_LAMBDA {
      Floats x = at.load(sums);
      if (added) x = hn::Add(x, at.load(added));
      if (bias) x = hn::Add(x, at.load(bias));
      if (pre) at.store(x, pre);
      if (rounds) x = Widen(RoundToBf16(x));
      if (g.activation == GemmActivation::kRelu) x = hn::IfThenZeroElse(hn::Lt(x, zero), x);  // a NaN stays
      if (g.activation == GemmActivation::kGelu) x = Gelu::Value(x);
      if (g.activation == GemmActivation::kGeluTanh) x = GeluTanh::Value(x);
      switch (g.derivative) {
        default:  // none
          break;
        case GemmActivation::kRelu: x = ReluMask::Gradient(at.load(aux), hn::Mul(x, scale)); break;
        case GemmActivation::kGelu: x = Gelu::Gradient(at.load(aux), hn::Mul(x, scale)); break;
        case GemmActivation::kGeluTanh: x = GeluTanh::Gradient(at.load(aux), hn::Mul(x, scale)); break;
      }
      at.store(x, c);
    });
    if (g.activation > GemmActivation::kGeluTanh) ActivateRows(g.activation, 1, columns, c, 0);
  }
}

}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();

#endif
