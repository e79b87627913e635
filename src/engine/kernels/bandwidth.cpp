#include "engine/kernels/bandwidth.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>
#include "base/thread_pool.h"

namespace linnet {

double measured_bandwidth(ThreadPool& pool, size_t bytes) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kBlock = 1 << 16;  // words of 8 bytes: what one task reads
  const int64_t blocks = std::max<int64_t>(1, static_cast<int64_t>(bytes / 8) / kBlock);
  std::vector<uint64_t> memory(static_cast<size_t>(kBlock * blocks), 1);
  std::atomic<uint64_t> total{0};
  double best = 0;
  for (int pass = 0; pass < 10; ++pass) {
    const Clock::time_point began = Clock::now();
    pool.run(blocks, [&](int64_t block, int) {
      const uint64_t* p = memory.data() + block * kBlock;
      // Several streams at once, as a product with a few rows reads its weights.
      constexpr int64_t kStreams = 8, kLength = kBlock / kStreams;
      uint64_t sums[kStreams] = {};
      for (int64_t i = 0; i < kLength; ++i)
        for (int64_t s = 0; s < kStreams; ++s) sums[s] += p[s * kLength + i];
      for (const uint64_t sum : sums) total += sum;
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
    best = std::max(best, static_cast<double>(kBlock * blocks * 8) / seconds);
  }
  return total > 0 ? best : 0;
}

}  // namespace linnet
