// A block's moments are decoded into memory on the stack, updated there with the parameters, and encoded again with the
// new scales. Multiplications and additions are left separate, for the same bits on every processor.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/kernels/optimizer_8bit.h"
#include "engine/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/optimizer_8bit_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

constexpr float kMostM = 127, kMostV = 255;
// The reciprocal of a smaller scale would overflow.
constexpr float kLeastScale = 1e-30f;

struct Factors {
  explicit Factors(const Adam8bitArgs& args) {
    const auto step = static_cast<double>(args.step);
    const double bias1 = 1 - std::pow(args.beta1, step), bias2 = 1 - std::pow(args.beta2, step);
    const auto f = [](double x) { return static_cast<float>(x); };
    l2 = f(args.weight_decay), shrink = f(1 - args.learning_rate * args.weight_decay);
    beta1 = f(args.beta1), rest1 = f(1 - args.beta1), beta2 = f(args.beta2), rest2 = f(1 - args.beta2);
    root2 = f(std::sqrt(bias2)), rate = f(args.learning_rate / bias1), epsilon = f(args.epsilon);
    ema_rest = f(1 - args.ema_decay);
  }
  float l2, shrink, beta1, rest1, beta2, rest2, root2, rate, epsilon, ema_rest;
};

// The moments of a block: codes, or m and sqrt(v).
struct Block {
  HWY_ALIGN uint8_t m_codes[kMomentBlock], v_codes[kMomentBlock];
  HWY_ALIGN float m[kMomentBlock], root[kMomentBlock];
};

void Decode(Block& block, float m_scale, float v_scale) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> d32;
  const hn::Rebind<int8_t, FloatTag> signed8;
  const hn::Rebind<uint8_t, FloatTag> unsigned8;
  const Floats m_factor = SetAll(m_scale / (kMostM * kMostM)), v_factor = SetAll(v_scale / (kMostV * kMostV));
  for (int64_t i = 0; i < kMomentBlock; i += kFloatLanes) {
    const auto q8 = hn::LoadU(signed8, reinterpret_cast<const int8_t*>(block.m_codes) + i);
    const Floats q = hn::ConvertTo(d, hn::PromoteTo(d32, q8));
    const Floats c = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(unsigned8, block.v_codes + i)));
    hn::Store(hn::Mul(hn::Mul(q, hn::Abs(q)), m_factor), d, block.m + i);
    hn::Store(hn::Mul(hn::Mul(c, c), v_factor), d, block.root + i);
  }
}

// Encodes the block and returns its scales.
void Encode(Block& block, float* m_scale, float* v_scale) {
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
void UpdatePart(const Adam8bitArgs& args, const Factors& f, Block& block, int64_t first, int64_t begin, int64_t end,
                bool decays) {
  const Floats scale = SetAll(args.grad_scale), l2 = SetAll(f.l2), shrink = SetAll(f.shrink);
  const Floats beta1 = SetAll(f.beta1), rest1 = SetAll(f.rest1), beta2 = SetAll(f.beta2), rest2 = SetAll(f.rest2);
  const Floats root2 = SetAll(f.root2), rate = SetAll(f.rate), epsilon = SetAll(f.epsilon);
  const bool keeps_more = 1 - args.beta1 < 0.5;  // as in engine/kernels/optimizer_simd.cpp
  float *const params = args.param + first + begin, *const ms = block.m + begin, *const roots = block.root + begin;
  ForRow(end - begin, [&](const auto& at) LINNET_LAMBDA {
    Floats param = at.load(params), g = hn::Mul(at.load(args.grad + first + begin), scale);
    if (decays && args.decoupled) param = hn::Mul(param, shrink);
    if (decays && !args.decoupled) g = hn::Add(g, hn::Mul(l2, param));
    Floats m = at.load(ms);
    const Floats old_root = at.load(roots), change = hn::Sub(g, m);
    m = keeps_more ? hn::Add(m, hn::Mul(rest1, change)) : hn::Sub(g, hn::Mul(beta1, change));
    const Floats v = hn::Add(hn::Mul(hn::Mul(old_root, old_root), beta2), hn::Mul(hn::Mul(rest2, g), g));
    const Floats root = hn::Sqrt(v);
    at.store(m, ms);
    at.store(root, roots);
    param = hn::Sub(param, hn::Div(hn::Mul(rate, m), hn::Add(hn::Div(root, root2), epsilon)));
    at.store(param, params);
    if (args.ema == nullptr) return;
    float* const emas = args.ema + first + begin;
    const Floats ema = at.load(emas);
    at.store(hn::Add(ema, hn::Mul(SetAll(f.ema_rest), hn::Sub(param, ema))), emas);
  });
}

void Adam8bitBlocks(const Adam8bitArgs& args, int64_t first_block, int64_t last_block) {
  const Factors factors(args);
  const int64_t decayed = args.weight_decay == 0 ? 0 : std::clamp<int64_t>(args.decay_count, 0, args.n);
  Block block;
  for (int64_t i = first_block; i < last_block; ++i) {
    const int64_t first = i * kMomentBlock, count = std::min(kMomentBlock, args.n - first);
    const auto bytes = static_cast<size_t>(count);
    if (count < kMomentBlock) {
      std::memset(block.m_codes, 0, sizeof block.m_codes);
      std::memset(block.v_codes, 0, sizeof block.v_codes);
    }
    std::memcpy(block.m_codes, args.m_codes + first, bytes);
    std::memcpy(block.v_codes, args.v_codes + first, bytes);
    Decode(block, args.m_scales[i], args.v_scales[i]);
    const int64_t split = std::clamp<int64_t>(decayed - first, 0, count);
    if (split > 0) UpdatePart(args, factors, block, first, 0, split, true);
    if (split < count) UpdatePart(args, factors, block, first, split, count, false);
    Encode(block, args.m_scales + i, args.v_scales + i);
    std::memcpy(args.m_codes + first, block.m_codes, bytes);
    std::memcpy(args.v_codes + first, block.v_codes, bytes);
  }
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(Adam8bitBlocks);

}  // namespace

void adam_8bit_update(const Adam8bitArgs& args, ThreadPool& pool) {
  for_ranges(pool, moment_blocks(args.n), kMomentBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Adam8bitBlocks)(args, begin, end);
  });
}

}  // namespace linnet
#endif
