#include <algorithm>
#include <atomic>
#include <chrono>
#include "base/thread_pool.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/gemm/gemm_bf16.h"
#include "engine/kernels/peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/peak_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/peak-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
float multiply_adds(int64_t rounds) { return tile::MultiplyAdds<tile::F32>(rounds); }
double round_operations() { return tile::kRoundOperations<tile::F32>; }
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(multiply_adds);
HWY_EXPORT(round_operations);

std::atomic<float> sink;

}  // namespace

double measured_peak_gflops(Precision precision, ThreadPool& pool) {
  const bool bf16 = precision == Precision::kBf16 && gemm_has_bf16();
  const double operations = bf16 ? bf16_round_operations() : HWY_DYNAMIC_DISPATCH(round_operations)();
  // Short runs: some of them find all cores undisturbed on a busy machine, too.
  constexpr int64_t kRounds = 1 << 18;
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  double best = 1e9;
  for (const auto start = Clock::now(); seconds(start) < 0.2;) {
    const auto run_start = Clock::now();
    pool.run(pool.size(), [&](int64_t, int) {
      sink = bf16 ? bf16_multiply_adds(kRounds) : HWY_DYNAMIC_DISPATCH(multiply_adds)(kRounds);
    });
    best = std::min(best, seconds(run_start));
  }
  return operations * static_cast<double>(kRounds) * pool.size() / best * 1e-9;
}

}  // namespace linnet
#endif
