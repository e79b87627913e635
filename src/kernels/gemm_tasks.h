// How the work of a product is dealt out, and how its two phases join without a second fork.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

namespace linnet {

// `total` things dealt to `parts` as evenly as can be, in order.
struct Deal {
  int64_t total, parts;
  int64_t begin(int64_t part) const { return part * (total / parts) + std::min(part, total % parts); }
  int64_t size(int64_t part) const { return total / parts + (part < total % parts); }
};

// Tasks are handed out in order, so those that pack come first and those that multiply wait here for the last of them.
// Whoever waits, waits for a thread that is at work.
class Latch {
 public:
  explicit Latch(int64_t count) : left_(count) {}
  void arrive() { left_.fetch_sub(1, std::memory_order_release); }
  void wait() const {
    for (int spins = 0; left_.load(std::memory_order_acquire) > 0; ++spins)
      if (spins > 2000) std::this_thread::yield();
  }

 private:
  std::atomic<int64_t> left_;
};

}  // namespace linnet
