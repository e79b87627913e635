// Products in bf16: vdpbf16ps, or ARM's bfdot, multiplies pairs of neighbors along k and adds both to an fp32 sum.
#ifdef __aarch64__
#include <sys/auxv.h>
#endif

#include <hwy/cache_control.h>
#include "base/thread_pool.h"
#include "engine/kernels/gemm/gemm_blocking.h"

#define HWY_TARGET_INCLUDE "engine/kernels/gemm/gemm_bf16_simd.cpp"
#include <hwy/foreach_target.h>

// Highway's AVX-512 target and one extension more, for the headers too: target pragmas add up in GCC, in clang the
// outermost counts. The headers they include were included above, without it.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
#endif
#include "engine/kernels/gemm/gemm_bf16-inl.h"
#include "engine/kernels/gemm/gemm_driver-inl.h"
#include "engine/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
bool has_bf16() {
#if HWY_ARCH_ARM_A64
  static const bool has = (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#else
  static const bool has = __builtin_cpu_supports("avx512bf16");
#endif
  return has;
}
bool gemm_bf16(const GemmArgs& args, const float* panels, float* workspace, ThreadPool& pool) {
  return has_bf16() && tile::packed_product<tile::Bf16>(args, workspace, pool, panels);
}
bool pack_bf16_panels(const GemmArgs& args, float* panels, ThreadPool& pool) {
  if (has_bf16()) tile::Product<tile::Bf16>(args, nullptr, 1).pack_weight(panels, pool);
  return has_bf16();
}
float multiply_adds(int64_t rounds) { return tile::MultiplyAdds<tile::Bf16>(rounds); }
double round_operations() { return tile::kRoundOperations<tile::Bf16>; }
#else
float multiply_adds(int64_t) { return 0; }
double round_operations() { return 0; }
bool has_bf16() { return false; }
bool gemm_bf16(const GemmArgs&, const float*, float*, ThreadPool&) { return false; }
bool pack_bf16_panels(const GemmArgs&, float*, ThreadPool&) { return false; }
#endif
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_TARGET == HWY_AVX3
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace linnet {
HWY_EXPORT(has_bf16);
HWY_EXPORT(gemm_bf16);
HWY_EXPORT(pack_bf16_panels);
HWY_EXPORT(multiply_adds);
HWY_EXPORT(round_operations);

bool gemm_has_bf16() { return HWY_DYNAMIC_DISPATCH(has_bf16)(); }

bool gemm_bf16(const GemmArgs& args, const float* panels, float* workspace, ThreadPool& pool) {
  return HWY_DYNAMIC_DISPATCH(gemm_bf16)(args, panels, workspace, pool);
}

bool pack_bf16_panels(const GemmArgs& args, float* panels, ThreadPool& pool) {
  return HWY_DYNAMIC_DISPATCH(pack_bf16_panels)(args, panels, pool);
}

float bf16_multiply_adds(int64_t rounds) { return HWY_DYNAMIC_DISPATCH(multiply_adds)(rounds); }
double bf16_round_operations() { return HWY_DYNAMIC_DISPATCH(round_operations)(); }
}  // namespace linnet
#endif
