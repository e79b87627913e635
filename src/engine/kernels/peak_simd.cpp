#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>
#include "base/thread_pool.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/gemm/gemm_bf16.h"
#include "engine/kernels/peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/peak_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/gemm/gemm_tile-inl.h"

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

using Clock = std::chrono::steady_clock;
double seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }
}  // namespace

double measured_peak_gflops(Precision precision, ThreadPool& pool) {
  const bool bf16 = precision == Precision::kBf16 && gemm_has_bf16();
  const double operations = bf16 ? bf16_round_operations() : HWY_DYNAMIC_DISPATCH(round_operations)();
  // Short runs: even on a busy machine some find all cores undisturbed.
  constexpr int64_t kRounds = 1 << 18;
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

double measured_bandwidth(ThreadPool& pool, size_t bytes) {
  constexpr int64_t kBlock = 1 << 16;  // words of 8 bytes: what one task reads
  const int64_t blocks = std::max<int64_t>(1, static_cast<int64_t>(bytes / 8) / kBlock);
  std::vector<uint64_t> memory(kBlock * blocks, 1);
  std::atomic<uint64_t> total{0};
  double best = 0;
  for (int pass = 0; pass < 10; ++pass) {
    const Clock::time_point began = Clock::now();
    pool.run(blocks, [&](int64_t block, int) {
      const uint64_t* p = memory.data() + block * kBlock;
      // Several streams, like a product with few rows reading its weights.
      constexpr int64_t kStreams = 8, kLength = kBlock / kStreams;
      uint64_t sums[kStreams] = {};
      for (int64_t i = 0; i < kLength; ++i)
        for (int64_t s = 0; s < kStreams; ++s) sums[s] += p[s * kLength + i];
      for (const uint64_t sum : sums) total += sum;
    });
    best = std::max(best, static_cast<double>(kBlock * blocks * 8) / seconds(began));
  }
  return total > 0 ? best : 0;
}
}  // namespace linnet
#endif
