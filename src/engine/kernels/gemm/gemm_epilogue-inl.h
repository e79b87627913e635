// What happens to the elements of C beyond sums, bias and ReLU: while a tile is in the L1 cache, GELU and the
// derivatives of activation functions are computed on it.
//  The formulas are those of ops/pointwise, operation by operation, for equal bits with and without fusion.
#if defined(LINNET_KERNELS_GEMM_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_GEMM_EPILOGUE_INL_H_
#undef LINNET_KERNELS_GEMM_EPILOGUE_INL_H_
#else
#define LINNET_KERNELS_GEMM_EPILOGUE_INL_H_
#endif

#include <type_traits>
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {
// x Phi(x) with Phi(x) = (erf(x / sqrt 2) + 1) / 2
struct Gelu {
  static HWY_INLINE Floats Phi(Floats scaled) { return hn::Mul(hn::Add(Erf(scaled), SetAll(1)), SetAll(0.5f)); }
  static HWY_INLINE Floats Value(Floats x) { return hn::Mul(x, Phi(hn::Mul(x, SetAll(kInverseRoot)))); }
  // dy (Phi(x) + x phi(x)), phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
  static HWY_INLINE Floats Gradient(Floats x, Floats dy) {
    const Floats scaled = hn::Mul(x, SetAll(kInverseRoot));
    const Floats half = hn::Mul(hn::Mul(dy, x), SetAll(0.5f));
    const Floats slope = hn::Mul(SetAll(1.128379167f), Exp(hn::Neg(hn::Mul(scaled, scaled))));
    return hn::Add(hn::Mul(dy, Phi(scaled)), hn::Mul(hn::Mul(half, slope), SetAll(kInverseRoot)));
  }
  static constexpr float kInverseRoot = 0.7071067812f;
};

// x (tanh(u) + 1) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3)
struct GeluTanh {
  static HWY_INLINE Floats Inner(Floats x) { return hn::Add(hn::Mul(hn::Mul(x, x), SetAll(kCube)), SetAll(1)); }
  static HWY_INLINE Floats Half(Floats tanh) { return hn::Mul(hn::Add(tanh, SetAll(1)), SetAll(0.5f)); }
  static HWY_INLINE Floats Value(Floats x) {
    return hn::Mul(x, Half(Tanh(hn::Mul(hn::Mul(x, Inner(x)), SetAll(kRoot)))));
  }
  static HWY_INLINE Floats Gradient(Floats x, Floats dy) {
    const Floats inner = Inner(x), tanh = Tanh(hn::Mul(hn::Mul(x, inner), SetAll(kRoot)));
    const Floats half = hn::Mul(hn::Mul(dy, x), SetAll(0.5f));
    const Floats slope = hn::Mul(hn::Mul(half, hn::Sub(SetAll(1), hn::Mul(tanh, tanh))), SetAll(kRoot));
    const Floats direct = hn::Add(hn::Mul(dy, Half(tanh)), hn::Mul(slope, inner));
    return hn::Add(direct, hn::Mul(hn::Mul(hn::Mul(slope, x), SetAll(kCube)), hn::Mul(SetAll(2), x)));
  }
  static constexpr float kRoot = 0.7978845608f, kCube = 0.044715f;
};

// Applies a function beyond ReLU to stored results, like a following node. Defined once per instruction set
// (gemm_simd.cpp), as many loops have an epilogue.
void ActivateRows(GemmActivation activation, int64_t rows, int64_t columns, MutableStoredFloats first, int64_t stride);

struct ReluMask {
  static HWY_INLINE Floats Gradient(Floats x, Floats dy) {
    return hn::IfThenElseZero(hn::Gt(x, hn::Zero(FloatTag())), dy);
  }
};

// visit(F()) with the function whose derivative is meant, if one is.
template <class Visit> HWY_INLINE void VisitDerivative(GemmActivation derivative, const Visit& visit) {
  if (derivative == GemmActivation::kRelu) visit(ReluMask());
  if (derivative == GemmActivation::kGelu) visit(Gelu());
  if (derivative == GemmActivation::kGeluTanh) visit(GeluTanh());
}

template <class F> HWY_INLINE void Activate(const GemmArgs& g, float* c, int64_t rows, int64_t columns) {
  const int64_t location = c - g.c.f32();
  for (int64_t i = 0; i < rows; ++i) {
    float* row = c + i * g.ldc;
    float* pre_activation = g.pre_activation ? g.pre_activation.f32() + location + i * g.ldc : nullptr;
    ForRow(columns, [=](const auto& at) LINNET_LAMBDA {
      const Floats x = at.load(row);
      if (pre_activation) at.store(x, pre_activation);
      at.store(F::Value(x), row);
    });
  }
}

template <class F> HWY_INLINE void Differentiate(const GemmArgs& g, float* c, int64_t rows, int64_t columns) {
  const int64_t location = c - g.c.f32();
  const Floats scale = SetAll(g.derivative_scale);
  for (int64_t i = 0; i < rows; ++i) {
    float* row = c + i * g.ldc;
    const float* aux = g.aux.f32() + location + i * g.ldc;
    ForRow(columns,
        [=](const auto& at) LINNET_LAMBDA { at.store(F::Gradient(at.load(aux), hn::Mul(at.load(row), scale)), row); });
  }
}

// Adds the residual after the bias, then ReLU.
inline HWY_NOINLINE void AddResidual(const GemmArgs& g, float* c, int64_t rows, int64_t columns) {
  const float* residual = g.residual.f32() + (c - g.c.f32());
  const bool relu = g.activation == GemmActivation::kRelu;
  for (int64_t i = 0; i < rows; ++i, c += g.ldc, residual += g.ldc)
    ForRow(columns, [=](const auto& at) LINNET_LAMBDA {
      const Floats x = hn::Add(at.load(c), at.load(residual));
      at.store(relu ? Relu(x) : x, c);
    });
}

inline bool has_epilogue(const GemmArgs& g) {
  return g.activation > GemmActivation::kRelu || g.derivative != GemmActivation::kNone;
}

// Files compile the epilogue with extra instructions of their own: `Unit` keeps the linker from mixing them up. A file
// with bf16 passes its policy.
struct TargetAlone;
struct WithVnni;
using UnitOfBytes = std::conditional_t<HWY_TARGET == HWY_AVX3, WithVnni, TargetAlone>;

// For a rectangle of C whose sums and bias are done, and ReLU unless `bias_first`.
template <class Unit> HWY_NOINLINE void Epilogue(const GemmArgs& g, float* c, int64_t rows, int64_t columns) {
  if (g.bias_first) AddResidual(g, c, rows, columns);
  if (g.activation == GemmActivation::kGelu) Activate<Gelu>(g, c, rows, columns);
  if (g.activation == GemmActivation::kGeluTanh) Activate<GeluTanh>(g, c, rows, columns);
  if (g.activation > GemmActivation::kGeluTanh) ActivateRows(g.activation, rows, columns, c, g.ldc);
  VisitDerivative(g.derivative, [&]<class F>(F) LINNET_LAMBDA { Differentiate<F>(g, c, rows, columns); });
}

// Computes the rectangle of C at (row, column) from its finished sums x, whose rows are `stride` apart, if C or a
// matrix beside it is bf16 in memory: all that GemmArgs says of x and C, in fp32. Programs have it once, compiled for
// processors that multiply in bf16, which alone call it.
inline HWY_NOINLINE void FinishApart(
    const GemmArgs& g, const float* sums, int64_t stride, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  const Floats scale = SetAll(g.derivative_scale);
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
      if (g.activation == GemmActivation::kRelu) x = Relu(x);
      if (g.activation == GemmActivation::kGelu) x = Gelu::Value(x);
      if (g.activation == GemmActivation::kGeluTanh) x = GeluTanh::Value(x);
      VisitDerivative(
          g.derivative, [&]<class F>(F) LINNET_LAMBDA { x = F::Gradient(at.load(aux), hn::Mul(x, scale)); });
      at.store(x, c);
    });
    if (g.activation > GemmActivation::kGeluTanh) ActivateRows(g.activation, 1, columns, c, 0);
  }
}
}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();

#endif
