// Multiplications and additions are left separate: the pass is bound by memory, and unfused they give the same bits on
// processors with and without fused multiply-add.
#include <algorithm>
#include "engine/kernels/optimizer.h"
#include "engine/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/optimizer_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/adam-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

HWY_INLINE Floats SetDouble(double x) { return SetAll(static_cast<float>(x)); }

template <class Args, class Position>
HWY_INLINE void Finish(const Args& args, const Position& at, Floats param, int64_t begin) {
  StoreParams(at, param, args.param + begin, args.ema == nullptr ? nullptr : args.ema + begin,
              static_cast<float>(1 - args.ema_decay));
}

void AdamRange(const AdamArgs& args, int64_t begin, int64_t end, bool decays) {
  const AdamFactors factors(args);
  const AdamStep step(factors, decays, args.decoupled);
  ForRow(end - begin, [&](const auto& at) LINNET_LAMBDA {
    Floats m = at.load(args.m + begin), v = at.load(args.v + begin), root;
    const Floats param = step(at.load(args.param + begin), at.load(args.grad + begin), m, v, root);
    at.store(m, args.m + begin);
    at.store(v, args.v + begin);
    Finish(args, at, param, begin);
  });
}

void SgdRange(const SgdArgs& args, int64_t begin, int64_t end, bool decays) {
  const Floats scale = SetAll(args.grad_scale), l2 = SetDouble(args.weight_decay);
  const Floats momentum = SetDouble(args.momentum), rate = SetDouble(args.learning_rate);
  ForRow(end - begin, [&](const auto& at) LINNET_LAMBDA {
    const Floats param = at.load(args.param + begin);
    Floats g = hn::Mul(at.load(args.grad + begin), scale);
    if (decays) g = hn::Add(g, hn::Mul(l2, param));
    if (args.buffer != nullptr) {
      const Floats buffer = hn::Add(hn::Mul(momentum, at.load(args.buffer + begin)), g);
      at.store(buffer, args.buffer + begin);
      g = buffer;
    }
    Finish(args, at, hn::Sub(param, hn::Mul(rate, g)), begin);
  });
}

void LionRange(const LionArgs& args, int64_t begin, int64_t end, bool decays) {
  const Floats scale = SetAll(args.grad_scale), shrink = SetDouble(1 - args.learning_rate * args.weight_decay);
  const Floats beta1 = SetDouble(args.beta1), rest1 = SetDouble(1 - args.beta1);
  const Floats beta2 = SetDouble(args.beta2), rest2 = SetDouble(1 - args.beta2);
  const Floats rate = SetDouble(args.learning_rate), zero = SetAll(0);
  ForRow(end - begin, [&](const auto& at) LINNET_LAMBDA {
    Floats param = at.load(args.param + begin);
    const Floats g = hn::Mul(at.load(args.grad + begin), scale), m = at.load(args.m + begin);
    if (decays) param = hn::Mul(param, shrink);
    const Floats mixed = hn::Add(hn::Mul(beta1, m), hn::Mul(rest1, g));
    at.store(hn::Add(hn::Mul(beta2, m), hn::Mul(rest2, g)), args.m + begin);
    const Floats step = hn::IfThenElse(hn::Eq(mixed, zero), zero, hn::CopySign(rate, mixed));
    Finish(args, at, hn::Sub(param, step), begin);
  });
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(AdamRange);
HWY_EXPORT(SgdRange);
HWY_EXPORT(LionRange);

// update(begin, end, decays) over all of [0, n), no range crossing the end of the decayed elements.
template <class Args, class Update>
void for_decay_groups(const Args& args, ThreadPool& pool, const Update& update) {
  const int64_t decayed = args.weight_decay == 0 ? 0 : std::clamp<int64_t>(args.decay_count, 0, args.n);
  for_ranges(pool, args.n, 1, [&](int64_t begin, int64_t end) {
    const int64_t split = std::clamp(decayed, begin, end);
    if (begin < split) update(begin, split, true);
    if (split < end) update(split, end, false);
  });
}

}  // namespace

void adam_update(const AdamArgs& args, ThreadPool& pool) {
  for_decay_groups(args, pool, [&](int64_t begin, int64_t end, bool decays) {
    HWY_DYNAMIC_DISPATCH(AdamRange)(args, begin, end, decays);
  });
}

void lion_update(const LionArgs& args, ThreadPool& pool) {
  for_decay_groups(args, pool, [&](int64_t begin, int64_t end, bool decays) {
    HWY_DYNAMIC_DISPATCH(LionRange)(args, begin, end, decays);
  });
}

void sgd_update(const SgdArgs& args, ThreadPool& pool) {
  for_decay_groups(args, pool, [&](int64_t begin, int64_t end, bool decays) {
    HWY_DYNAMIC_DISPATCH(SgdRange)(args, begin, end, decays);
  });
}

}  // namespace linnet
#endif
