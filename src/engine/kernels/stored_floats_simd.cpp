#include <cstring>
#include "engine/kernels/parallel.h"
#include "engine/kernels/stored_floats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/stored_floats_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

template <class From, class To>
HWY_INLINE void Copy(int64_t n, const From* from, To* to) {
  ForRow(n, [=](const auto& at) LINNET_LAMBDA { at.store(at.load(from), to); });
}

void RoundRange(int64_t n, const float* from, Bfloat16* to) { Copy(n, from, to); }
void WidenRange(int64_t n, const Bfloat16* from, float* to) { Copy(n, from, to); }

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(RoundRange);
HWY_EXPORT(WidenRange);

}  // namespace

#if HWY_ARCH_X86
const bool kProcessorRoundsToBf16 = __builtin_cpu_supports("avx512bf16");
#else
const bool kProcessorRoundsToBf16 = false;
#endif

void convert_floats(int64_t n, StoredFloats from, MutableStoredFloats to, ThreadPool& pool) {
  for_ranges(pool, n, 1, [&](int64_t begin, int64_t end) {
    const StoredFloats source = from + begin;
    const MutableStoredFloats target = to + begin;
    if (source.is_bf16 == target.is_bf16)
      std::memmove(target.data, source.data, static_cast<size_t>(end - begin) * (source.is_bf16 ? 2 : 4));
    else if (source.is_bf16) HWY_DYNAMIC_DISPATCH(WidenRange)(end - begin, source.bf16(), target.f32());
    else HWY_DYNAMIC_DISPATCH(RoundRange)(end - begin, source.f32(), target.bf16());
  });
}

}  // namespace linnet
#endif
