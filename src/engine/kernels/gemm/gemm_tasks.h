// How the work of a product is dealt out, and how its two phases join without a second fork.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include "engine/kernels/gemm/gemm.h"

namespace linnet {

// `total` things dealt to `parts` as evenly as can be, in order.
class Deal {
 public:
  Deal(int64_t total, int64_t parts) : parts_(parts), each_(total / parts), more_(total % parts) {}
  int64_t parts() const { return parts_; }
  int64_t begin(int64_t part) const { return part * each_ + std::min(part, more_); }
  int64_t size(int64_t part) const { return each_ + (part < more_); }

 private:
  int64_t parts_, each_, more_;  // the first more_ parts have one more
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

// Product `index` of a batch.
inline GemmArgs product_of_batch(GemmArgs g, int64_t index) {
  g.a = g.a + index * g.a_batch;
  g.b = g.b + index * g.b_batch;
  const int64_t skip = index * g.c_batch;
  g.c = g.c + skip;
  if (g.residual) g.residual = g.residual + skip;
  if (g.pre_activation) g.pre_activation = g.pre_activation + skip;
  if (g.aux) g.aux = g.aux + skip;
  return g;
}

}  // namespace linnet
