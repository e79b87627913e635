// Multiplications and additions are not fused: memory bounds the pass, and processors with and without fused
// multiply-add give the same bits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include "engine/kernels/optimizer.h"
#include "engine/kernels/parallel.h"

#define HWY_TARGET_INCLUDE "engine/kernels/optimizer_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
HWY_INLINE Floats SetDouble(double x) { return SetAll(static_cast<float>(x)); }

// Stores parameters and updates their average, if there is one.
template <class Position>
HWY_INLINE void Finish(const UpdateArgs& args, const Position& at, Floats param, int64_t begin) {
  at.store(param, args.param + begin);
  if (args.ema == nullptr) return;
  const Floats old = at.load(args.ema + begin);
  at.store(hn::Add(old, hn::Mul(SetDouble(1 - args.ema_decay), hn::Sub(param, old))), args.ema + begin);
}

class AdamStep {
 public:
  HWY_INLINE AdamStep(const UpdateArgs& args, bool decays)
      : decays_(decays && args.decoupled), adds_l2_(decays && !args.decoupled), keeps_more_(1 - args.beta1 < 0.5) {
    const auto step = static_cast<double>(args.step);
    scale_ = SetAll(args.grad_scale), l2_ = SetDouble(args.weight_decay);
    shrink_ = SetDouble(1 - args.learning_rate * args.weight_decay);
    beta1_ = SetDouble(args.beta1), rest1_ = SetDouble(1 - args.beta1);
    beta2_ = SetDouble(args.beta2), rest2_ = SetDouble(1 - args.beta2);
    root2_ = SetDouble(std::sqrt(1 - std::pow(args.beta2, step))), epsilon_ = SetDouble(args.epsilon);
    rate_ = SetDouble(args.learning_rate / (1 - std::pow(args.beta1, step)));
  }
  // Updates the moments and returns the parameters; `root` becomes sqrt(v).
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
  bool decays_, adds_l2_;
  bool keeps_more_;  // torch.lerp is exact at the nearer end
};

void AdamRange(const UpdateArgs& args, int64_t begin, int64_t end, bool decays) {
  const AdamStep step(args, decays);
  ForRow(end - begin, [&](const auto& at) LINNET_LAMBDA {
    Floats m = at.load(args.m + begin), v = at.load(args.v + begin), root;
    const Floats param = step(at.load(args.param + begin), at.load(args.grad + begin), m, v, root);
    at.store(m, args.m + begin);
    at.store(v, args.v + begin);
    Finish(args, at, param, begin);
  });
}

void SgdRange(const UpdateArgs& args, int64_t begin, int64_t end, bool decays) {
  const Floats scale = SetAll(args.grad_scale), l2 = SetDouble(args.weight_decay);
  const Floats momentum = SetDouble(args.momentum), rate = SetDouble(args.learning_rate);
  ForRow(end - begin, [&](const auto& at) LINNET_LAMBDA {
    const Floats param = at.load(args.param + begin);
    Floats g = hn::Mul(at.load(args.grad + begin), scale);
    if (decays) g = hn::Add(g, hn::Mul(l2, param));
    if (args.m != nullptr) {
      const Floats buffer = hn::Add(hn::Mul(momentum, at.load(args.m + begin)), g);
      at.store(buffer, args.m + begin);
      g = buffer;
    }
    Finish(args, at, hn::Sub(param, hn::Mul(rate, g)), begin);
  });
}

void LionRange(const UpdateArgs& args, int64_t begin, int64_t end, bool decays) {
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

constexpr float kMostM = 127, kMostV = 255;
// The reciprocal of a smaller scale would overflow.
constexpr float kLeastScale = 1e-30f;

// The moments of a block: codes, or m and sqrt(v). Decoded onto the stack, updated and encoded again.
struct Block {
  HWY_ALIGN uint8_t m_codes[kMomentBlock], v_codes[kMomentBlock];
  HWY_ALIGN float m[kMomentBlock], root[kMomentBlock];
};

void Decode(Block& block, float m_scale, float v_scale) {
  const FloatTag d;
  const hn::Rebind<int8_t, FloatTag> signed8;
  const hn::Rebind<uint8_t, FloatTag> unsigned8;
  const Floats m_factor = SetAll(m_scale / (kMostM * kMostM)), v_factor = SetAll(v_scale / (kMostV * kMostV));
  for (int64_t i = 0; i < kMomentBlock; i += kFloatLanes) {
    const auto q8 = hn::LoadU(signed8, reinterpret_cast<const int8_t*>(block.m_codes) + i);
    const Floats q = hn::ConvertTo(d, hn::PromoteTo(IntTag(), q8));
    const Floats c = hn::ConvertTo(d, hn::PromoteTo(IntTag(), hn::LoadU(unsigned8, block.v_codes + i)));
    hn::Store(hn::Mul(hn::Mul(q, hn::Abs(q)), m_factor), d, block.m + i);
    hn::Store(hn::Mul(hn::Mul(c, c), v_factor), d, block.root + i);
  }
}

void Encode(Block& block, float* m_scale, float* v_scale) {  // returns its scales
  const FloatTag d;
  const hn::Rebind<int8_t, FloatTag> signed8;
  const hn::Rebind<uint8_t, FloatTag> unsigned8;
  Floats most_m = SetAll(0), most_root = SetAll(0);
  for (int64_t i = 0; i < kMomentBlock; i += kFloatLanes) {
    most_m = hn::Max(most_m, hn::Abs(hn::Load(d, block.m + i)));
    most_root = hn::Max(most_root, hn::Load(d, block.root + i));
  }
  const float m = hn::GetLane(hn::MaxOfLanes(d, most_m)), root = hn::GetLane(hn::MaxOfLanes(d, most_root));
  *m_scale = m >= kLeastScale ? m : 0;
  *v_scale = root >= kLeastScale ? root : 0;
  const Floats to_m = SetAll(*m_scale > 0 ? kMostM * kMostM / m : 0),
               to_v = SetAll(*v_scale > 0 ? kMostV * kMostV / root : 0);
  const Floats zero = SetAll(0), one = SetAll(1), top_m = SetAll(kMostM), top_v = SetAll(kMostV);
  for (int64_t i = 0; i < kMomentBlock; i += kFloatLanes) {
    const Floats x = hn::Load(d, block.m + i), r = hn::Load(d, block.root + i);
    const Floats q = hn::Min(hn::Sqrt(hn::Mul(hn::Abs(x), to_m)), top_m);
    const Floats c = hn::Min(hn::Sqrt(hn::Mul(r, to_v)), top_v);
    const Floats least = hn::IfThenElse(hn::Gt(r, zero), one, zero);
    hn::StoreU(hn::DemoteTo(signed8, hn::NearestInt(hn::CopySign(q, x))), signed8,
        reinterpret_cast<int8_t*>(block.m_codes) + i);
    hn::StoreU(hn::DemoteTo(unsigned8, hn::NearestInt(hn::Max(c, least))), unsigned8, block.v_codes + i);
  }
}

// The elements [begin, end) of a block whose parameters begin at `first`.
void UpdatePart(const UpdateArgs& args, const AdamStep& step, Block& block, int64_t first, int64_t begin, int64_t end) {
  float *const ms = block.m + begin, *const roots = block.root + begin;
  const int64_t at_params = first + begin;
  ForRow(end - begin, [&](const auto& at) LINNET_LAMBDA {
    Floats m = at.load(ms), root = at.load(roots), v = hn::Mul(root, root);
    const Floats param = step(at.load(args.param + at_params), at.load(args.grad + at_params), m, v, root);
    at.store(m, ms);
    at.store(root, roots);
    Finish(args, at, param, at_params);
  });
}

void Adam8bitBlocks(const UpdateArgs& args, const Moments8bit& moments, int64_t first_block, int64_t last_block) {
  const AdamStep decaying(args, true), plain(args, false);
  const int64_t decayed = args.weight_decay == 0 ? 0 : std::clamp<int64_t>(args.decay_count, 0, args.n);
  Block block;
  for (int64_t i = first_block; i < last_block; ++i) {
    const int64_t first = i * kMomentBlock, count = std::min(kMomentBlock, args.n - first);
    const auto bytes = static_cast<size_t>(count);
    if (count < kMomentBlock) {
      std::memset(block.m_codes, 0, sizeof block.m_codes);
      std::memset(block.v_codes, 0, sizeof block.v_codes);
    }
    std::memcpy(block.m_codes, moments.m_codes + first, bytes);
    std::memcpy(block.v_codes, moments.v_codes + first, bytes);
    Decode(block, moments.m_scales[i], moments.v_scales[i]);
    const int64_t split = std::clamp<int64_t>(decayed - first, 0, count);
    if (split > 0) UpdatePart(args, decaying, block, first, 0, split);
    if (split < count) UpdatePart(args, plain, block, first, split, count);
    Encode(block, moments.m_scales + i, moments.v_scales + i);
    std::memcpy(moments.m_codes + first, block.m_codes, bytes);
    std::memcpy(moments.v_codes + first, block.v_codes, bytes);
  }
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
HWY_EXPORT(Adam8bitBlocks);

// update(begin, end, decays) over all of [0, n), no range crossing the end of the decayed elements.
template <class Update> void update_ranges(const UpdateArgs& args, ThreadPool& pool, const Update& update) {
  const int64_t decayed = args.weight_decay == 0 ? 0 : std::clamp<int64_t>(args.decay_count, 0, args.n);
  for_ranges(pool, args.n, 1, [&](int64_t begin, int64_t end) {
    const int64_t split = std::clamp(decayed, begin, end);
    if (begin < split) update(begin, split, true);
    if (split < end) update(split, end, false);
  });
}
}  // namespace

void adam_update(const UpdateArgs& args, ThreadPool& pool) {
  update_ranges(args, pool, [&](auto... range) { HWY_DYNAMIC_DISPATCH(AdamRange)(args, range...); });
}

void sgd_update(const UpdateArgs& args, ThreadPool& pool) {
  update_ranges(args, pool, [&](auto... range) { HWY_DYNAMIC_DISPATCH(SgdRange)(args, range...); });
}

void lion_update(const UpdateArgs& args, ThreadPool& pool) {
  update_ranges(args, pool, [&](auto... range) { HWY_DYNAMIC_DISPATCH(LionRange)(args, range...); });
}

void adam_8bit_update(const UpdateArgs& args, const Moments8bit& moments, ThreadPool& pool) {
  for_ranges(pool, moment_blocks(args.n), kMomentBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Adam8bitBlocks)(args, moments, begin, end);
  });
}
}  // namespace linnet
#endif
