// exp, log, tanh, erf, sigmoid, sin and cos on vectors of float. Unlike hwy/contrib/math, which swallows NaN and
// returns garbage far out of range, NaN stays NaN and limits are those of <cmath>, except that Exp flushes results
// below the smallest normal number (1.2e-38) to zero. Errors, in units of the last place: Exp 1.2, Log 1, Tanh 2.3,
// Sigmoid 2.2, Erf 3.6 (2e-7), Sin and Cos 2.4. The polynomials interpolate at Chebyshev nodes.
#if defined(LINNET_KERNELS_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_VECTOR_MATH_INL_H_
#undef LINNET_KERNELS_VECTOR_MATH_INL_H_
#else
#define LINNET_KERNELS_VECTOR_MATH_INL_H_
#endif

#include <cmath>
#include <limits>
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
HWY_INLINE Floats Polynomial(Floats, float c0) { return SetAll(c0); }
template <class... Rest> HWY_INLINE Floats Polynomial(Floats x, float c0, Rest... rest) {
  return hn::MulAdd(Polynomial(x, rest...), x, SetAll(c0));
}

// x = n ln 2 + r with |r| <= ln(2) / 2; `bits` has n in its low bits. Adding 1.5 * 2^23 rounds to an integer without a
// conversion, whose result for NaN differs between processors.
struct ExpParts {
  hn::Vec<IntTag> bits;
  Floats r;
};
HWY_INLINE ExpParts SplitExp(Floats x) {
  const Floats magic = SetAll(12582912.0f);
  const Floats shifted = hn::MulAdd(x, SetAll(1.44269504f), magic);
  const Floats n = hn::Sub(shifted, magic);
  Floats r = hn::NegMulAdd(n, SetAll(0.693145751953125f), x);  // ln 2 in two parts (Cody and Waite)
  r = hn::NegMulAdd(n, SetAll(1.428606765330187e-6f), r);
  return {hn::BitCast(IntTag(), shifted), r};
}

HWY_INLINE Floats ExpTail(Floats r) {  // (exp(r) - 1 - r) / r^2
  return Polynomial(r, 0.5f, 0.1666657594f, 0.04166655331f, 0.008363352683f, 0.001392640048f);
}

HWY_INLINE Floats Exp(Floats x) {
  const ExpParts parts = SplitExp(x);
  const Floats r = parts.r, one = SetAll(1.0f);
  const Floats p = hn::MulAdd(hn::MulAdd(ExpTail(r), r, one), r, one);
  const Floats y = hn::BitCast(FloatTag(), hn::Add(hn::BitCast(IntTag(), p), hn::ShiftLeft<23>(parts.bits)));
  // Outside the range where p 2^n is a normal number: 0 far below, +inf far above, NaN for NaN.
  const auto normal = hn::And(hn::Ge(x, SetAll(-87.336544f)), hn::Le(x, SetAll(88.722831f)));
  const Floats beyond =
      hn::IfThenZeroElse(hn::Lt(x, hn::Zero(FloatTag())), hn::Add(x, SetAll(std::numeric_limits<float>::infinity())));
  return hn::IfThenElse(normal, y, beyond);
}

// log(2^n (1 + f)) = n ln 2 + f - f^2 / 2 + f^3 P(f) with 1 + f in [sqrt(1/2), sqrt(2)].
HWY_INLINE Floats Log(Floats x) {
  const FloatTag d;
  const IntTag di;
  const float infinity = std::numeric_limits<float>::infinity();
  const auto small = hn::Lt(x, SetAll(std::numeric_limits<float>::min()));
  const Floats scaled = hn::IfThenElse(small, hn::Mul(x, SetAll(33554432.0f)), x);  // 2^25: denormals become normal
  const auto bits = hn::Sub(hn::BitCast(di, scaled), hn::Set(di, 0x3f3504f3));      // sqrt(1/2)
  const auto exponent = hn::ShiftRight<23>(bits);
  const Floats n = hn::Sub(hn::ConvertTo(d, exponent), hn::IfThenElseZero(small, SetAll(25.0f)));
  const Floats f = hn::Sub(hn::BitCast(d, hn::Sub(hn::BitCast(di, scaled), hn::ShiftLeft<23>(exponent))), SetAll(1));
  const Floats p = Polynomial(f, 0.3333333073f, -0.2500030642f, 0.2000104509f, -0.1664128146f, 0.1421449592f,
      -0.1299818376f, 0.1262231985f, -0.07902743772f);
  const Floats f2 = hn::Mul(f, f);
  Floats y = hn::MulAdd(hn::Mul(f2, f), p, hn::Mul(n, SetAll(1.428606765330187e-6f)));
  y = hn::Add(hn::MulAdd(f2, SetAll(-0.5f), y), f);
  y = hn::MulAdd(n, SetAll(0.693145751953125f), y);
  const auto normal = hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, SetAll(infinity)));
  // 0 -> -inf, +inf -> +inf, below zero and NaN -> NaN.
  const Floats beyond = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), SetAll(-infinity),
      hn::IfThenElse(hn::Eq(x, SetAll(infinity)), x, SetAll(std::numeric_limits<float>::quiet_NaN())));
  return hn::IfThenElse(normal, y, beyond);
}

// tanh |x| = e / (e + 2) with e = exp(2 |x|) - 1, computed without cancellation near zero.
HWY_INLINE Floats Tanh(Floats x) {
  const Floats twice = hn::Abs(hn::Add(x, x)), limit = SetAll(20.0f);
  const ExpParts parts = SplitExp(hn::IfThenElse(hn::Gt(twice, limit), limit, twice));  // keeps NaN, unlike Min
  const Floats r = parts.r, one = SetAll(1.0f);
  const Floats q = hn::MulAdd(hn::Mul(ExpTail(r), r), r, r);  // exp(r) - 1
  const Floats power =
      hn::BitCast(FloatTag(), hn::Add(hn::ShiftLeft<23>(parts.bits), hn::BitCast(IntTag(), one)));  // 2^n, n in [0, 29]
  const Floats e = hn::MulAdd(power, q, hn::Sub(power, one));
  return hn::CopySign(hn::Div(e, hn::Add(e, SetAll(2.0f))), x);
}

HWY_INLINE Floats Sigmoid(Floats x) {
  const Floats one = SetAll(1.0f);
  return hn::Div(one, hn::Add(one, Exp(hn::Neg(x))));
}

// erf(x) = x P(t) with t = 2 (x / 3.92)^2 - 1 in [-1, 1]; beyond 3.92 it is 1 to rounding.
HWY_INLINE Floats Erf(Floats x) {
  const Floats one = SetAll(1.0f), limit = SetAll(3.92f), size = hn::Abs(x);
  const Floats a = hn::IfThenElse(hn::Gt(size, limit), limit, size);
  const Floats t = hn::MulAdd(hn::Mul(a, a), SetAll(1 / 7.6832f), SetAll(-1.0f));
  const Floats p = Polynomial(t, 0.3607368091f, -0.1801085971f, 0.1340847932f, -0.1091805417f, 0.09059291529f,
      -0.07400414836f, 0.05842158902f, -0.04351752471f, 0.02962136827f, -0.01978485842f, 0.01432561579f,
      -0.007950687424f, 0.001833373336f, -0.001192202844f, 0.0021241232f, -0.0009000014543f);
  const Floats y = hn::Mul(a, p);
  return hn::CopySign(hn::IfThenElse(hn::Gt(y, one), one, y), x);
}

// libm per lane, exact for arguments of any size.
template <class F> HWY_INLINE Floats PerLane(Floats x, const F& f) {
  HWY_ALIGN float lanes[kFloatLanes];
  hn::Store(x, FloatTag(), lanes);
  for (float& lane : lanes) lane = f(lane);
  return hn::Load(FloatTag(), lanes);
}

// x = n pi + r with |r| <= pi / 2. The sine takes a whole n: sin x = (-1)^n sin r. The cosine takes n = k + 1 / 2 with
// a whole k: cos x = -(-1)^k sin r.
template <bool kCos> HWY_INLINE Floats SinOrCos(Floats x) {
  const Floats magic = SetAll(12582912.0f), half = SetAll(kCos ? 0.5f : 0.0f), one = SetAll(1.0f);  // see SplitExp()
  const Floats shifted = hn::Add(hn::MulSub(x, SetAll(0.318309886f), half), magic);
  const Floats n = hn::Add(hn::Sub(shifted, magic), half);
  Floats r = hn::NegMulAdd(n, SetAll(3.140625f), x);  // pi in four parts; products by the first two are exact
  r = hn::NegMulAdd(n, SetAll(0.0009670257568359375f), r);
  r = hn::NegMulAdd(n, SetAll(6.2771141529083252e-7f), r);
  r = hn::NegMulAdd(n, SetAll(1.2154201256553420e-10f), r);
  const Floats s = hn::Mul(r, r);
  const Floats p = Polynomial(s, -0.16666667f, 0.008333333f, -0.00019841087f, 2.753646e-6f, -2.4080094e-8f);
  const Floats size = hn::Abs(hn::MulAdd(hn::Mul(s, r), p, r));
  const auto sign = hn::ShiftLeft<31>(hn::Add(hn::BitCast(IntTag(), shifted), hn::Set(IntTag(), kCos)));
  const Floats y = hn::Xor(hn::CopySign(hn::Min(size, one), r), hn::BitCast(FloatTag(), sign));
  const auto is_near = hn::Le(hn::Abs(x), SetAll(5e4f));  // up to there n times the first parts is exact
  if (hn::AllTrue(FloatTag(), is_near)) return y;
  return hn::IfThenElse(is_near, y, PerLane(x, [](float v) HWY_ATTR { return kCos ? std::cos(v) : std::sin(v); }));
}
HWY_INLINE Floats Sin(Floats x) { return SinOrCos<false>(x); }
HWY_INLINE Floats Cos(Floats x) { return SinOrCos<true>(x); }

// Of rows, as softmax and cross-entropy need them.

// The largest element; unspecified if some are NaN, since the exponentials then are NaN anyway.
template <class T> HWY_INLINE float MaxRow(int64_t width, const T* x) {
  const float lowest = -std::numeric_limits<float>::infinity();
  const Floats largest = FoldRow(
      width, lowest, [=](const auto& at) LINNET_LAMBDA { return at.load(x, lowest); },
      [](Floats a, Floats b) LINNET_LAMBDA { return hn::Max(a, b); });
  return hn::GetLane(hn::MaxOfLanes(FloatTag(), largest));
}

// The sum of exp(x - shift); lanes past the end add exp(-inf) = 0.
template <class T> HWY_INLINE float SumExp(int64_t width, const T* x, float shift) {
  const Floats offset = SetAll(shift);
  return SumRow(width, [=](const auto& at) LINNET_LAMBDA {
    return Exp(hn::Sub(at.load(x, -std::numeric_limits<float>::infinity()), offset));
  });
}
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
