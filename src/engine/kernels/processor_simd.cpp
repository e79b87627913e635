#include <algorithm>
#include <atomic>
#include <chrono>
#include "base/fail.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/gemm/gemm_blocking.h"
#include "engine/kernels/processor.h"

#define HWY_TARGET_INCLUDE "engine/kernels/processor_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
int64_t this_target() { return HWY_TARGET; }

float multiply_adds(int64_t rounds) { return tile::MultiplyAdds<tile::F32>(rounds); }
double round_operations() { return tile::kRoundOperations<tile::F32>; }
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#if HWY_MAJOR == 1 && HWY_MINOR == 0
// Highway's library measures its benchmark timer's resolution when it is loaded: 5 to 10 ms before main(), for unused
// benchmarks. Its call finds this function first, as our libraries come first for the dynamic linker.
namespace hwy::platform {
uint64_t TimerResolution();
[[gnu::visibility("default"), gnu::used]] uint64_t TimerResolution() { return 1; }
}  // namespace hwy::platform
#endif

namespace linnet {
namespace {
HWY_EXPORT(this_target);
HWY_EXPORT(multiply_adds);
HWY_EXPORT(round_operations);

std::atomic<float> sink;

using Clock = std::chrono::steady_clock;
double seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

std::string isa_name(int64_t target) {
  std::string name = lower_ascii(hwy::TargetName(target));
  if (name.starts_with("avx3")) name.replace(0, 4, "avx512");
  return name;
}

// What the processor has, whatever is forced; a lower bit is a better target.
std::vector<int64_t> available_targets() {
  static const int64_t supported = [] {
    hwy::SetSupportedTargetsForTest(0);
    return (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
  }();
  std::vector<int64_t> result;
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) result.push_back(rest & -rest);
  return result;
}
}  // namespace

std::vector<std::string> available_isas() { return mapped(available_targets(), isa_name); }

std::string current_isa() { return isa_name(HWY_DYNAMIC_DISPATCH(this_target)()); }

void force_isa(const std::string& name) {
  const std::vector<int64_t> targets = available_targets();
  int64_t wanted = name == "auto" ? targets.front() : name == "baseline" ? targets.back() : 0;
  std::string choices = "auto, baseline";
  for (const int64_t target : targets) {
    choices += ", " + isa_name(target);
    if (isa_name(target) == name) wanted = target;
  }
  if (wanted == 0) fail_user("instruction set '", name, "' is not one of: ", choices);
  hwy::SetSupportedTargetsForTest(name == "auto" ? 0 : wanted);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

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
