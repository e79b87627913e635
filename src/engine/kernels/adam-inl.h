// Adam's arithmetic, for moments in fp32 and in 8 bits (optimizer.h has the formulas). Included by *_simd.cpp after
// "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_ADAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_ADAM_INL_H_
#undef LINNET_KERNELS_ADAM_INL_H_
#else
#define LINNET_KERNELS_ADAM_INL_H_
#endif

#include <cmath>
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

struct AdamFactors {
  template <class Args>
  explicit AdamFactors(const Args& args) : keeps_more(1 - args.beta1 < 0.5) {
    const auto step = static_cast<double>(args.step);
    const auto f = [](double x) { return static_cast<float>(x); };
    scale = args.grad_scale, l2 = f(args.weight_decay), shrink = f(1 - args.learning_rate * args.weight_decay);
    beta1 = f(args.beta1), rest1 = f(1 - args.beta1), beta2 = f(args.beta2), rest2 = f(1 - args.beta2);
    root2 = f(std::sqrt(1 - std::pow(args.beta2, step))), epsilon = f(args.epsilon);
    rate = f(args.learning_rate / (1 - std::pow(args.beta1, step))), ema_rest = f(1 - args.ema_decay);
  }
  float scale, l2, shrink, beta1, rest1, beta2, rest2, root2, epsilon, rate, ema_rest;
  bool keeps_more;  // torch.lerp is exact at the nearer end
};

class AdamStep {
 public:
  AdamStep(const AdamFactors& f, bool decays, bool decoupled)
      : decays_(decays && decoupled), adds_l2_(decays && !decoupled), keeps_more_(f.keeps_more) {
    scale_ = SetAll(f.scale), l2_ = SetAll(f.l2), shrink_ = SetAll(f.shrink);
    beta1_ = SetAll(f.beta1), rest1_ = SetAll(f.rest1), beta2_ = SetAll(f.beta2), rest2_ = SetAll(f.rest2);
    root2_ = SetAll(f.root2), epsilon_ = SetAll(f.epsilon), rate_ = SetAll(f.rate);
  }
  // Moves the moments and returns the parameters; `root` becomes sqrt(v).
  HWY_INLINE Floats operator()(Floats param, Floats grad, Floats& m, Floats& v, Floats& root) const {
    Floats g = hn::Mul(grad, scale_);
    if (decays_) param = hn::Mul(param, shrink_);
    if (adds_l2_) g = hn::Add(g, hn::Mul(l2_, param));
    const Floats change = hn::Sub(g, m);
    m = keeps_more_ ? hn::Add(m, hn::Mul(rest1_, change)) : hn::Sub(g, hn::Mul(beta1_, change));
    v = hn::Add(hn::Mul(v, beta2_), hn::Mul(hn::Mul(rest2_, g), g));
    root = hn::Sqrt(v);
    return hn::Sub(param, hn::Div(hn::Mul(rate_, m), hn::Add(hn::Div(root, root2_), epsilon_)));
  }

 private:
  Floats scale_, l2_, shrink_, beta1_, rest1_, beta2_, rest2_, root2_, epsilon_, rate_;
  bool decays_, adds_l2_, keeps_more_;
};

// Stores parameters and moves their average, where there is one.
template <class Position>
HWY_INLINE void StoreParams(const Position& at, Floats params, float* to, float* ema, float ema_rest) {
  at.store(params, to);
  if (ema == nullptr) return;
  const Floats old = at.load(ema);
  at.store(hn::Add(old, hn::Mul(SetAll(ema_rest), hn::Sub(params, old))), ema);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
