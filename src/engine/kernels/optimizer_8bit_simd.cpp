// A block's moments are decoded into memory on the stack, updated there with the parameters, and encoded again with the
// new scales. Multiplications and additions are left separate, for the same bits on every processor.
#include <algorithm>
#include <cstring>
#include "engine/kernels/optimizer_8bit.h"
#include "engine/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/optimizer_8bit_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/adam-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

constexpr float kMostM = 127, kMostV = 255;
// The reciprocal of a smaller scale would overflow.
constexpr float kLeastScale = 1e-30f;

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
void UpdatePart(const Adam8bitArgs& args, const AdamFactors& factors, Block& block, int64_t first, int64_t begin,
                int64_t end, bool decays) {
  const AdamStep step(factors, decays, args.decoupled);
  float *const params = args.param + first + begin, *const ms = block.m + begin, *const roots = block.root + begin;
  float* const emas = args.ema == nullptr ? nullptr : args.ema + first + begin;
  ForRow(end - begin, [&](const auto& at) LINNET_LAMBDA {
    Floats m = at.load(ms), root = at.load(roots), v = hn::Mul(root, root);
    const Floats param = step(at.load(params), at.load(args.grad + first + begin), m, v, root);
    at.store(m, ms);
    at.store(root, roots);
    StoreParams(at, param, params, emas, factors.ema_rest);
  });
}

void Adam8bitBlocks(const Adam8bitArgs& args, int64_t first_block, int64_t last_block) {
  const AdamFactors factors(args);
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
