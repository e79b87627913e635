// Divides a kernel's workspace and index range by shape alone, so that results do not depend on the number of threads.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include "base/numbers.h"
#include "base/thread_pool.h"

namespace linnet {
// A fork and join costs one to two microseconds, as long as some 16 thousand cheap elements on one core.
constexpr int64_t kSerialWork = 16384;
constexpr int64_t kTaskWork = 8192;

// body(begin, end) over ranges of some size that cover [0, count) once. `work`: elements touched per index.
template <class Body> void for_ranges(ThreadPool& pool, int64_t count, int64_t work, const Body& body) {
  if (count <= 0) return;
  work = std::max<int64_t>(work, 1);
  if (count * work <= kSerialWork) return body(int64_t{0}, count);
  for_steps(pool, count, std::max<int64_t>(kTaskWork / work, 1), body);
}

// body(i) of each index in [0, count), for ranges of them.
template <class Body> void for_each_index(ThreadPool& pool, int64_t count, int64_t work, const Body& body) {
  for_ranges(pool, count, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

// Sums over rows are cut into this many chunks of consecutive rows, whose partial sums are added in order.
inline int64_t row_chunks(int64_t rows) { return std::clamp<int64_t>(ceil_div(rows, 64), 1, 32); }

// Divides a workspace into regions at multiples of `alignment` bytes. If `base` is null, only counts the bytes.
class Regions {
 public:
  explicit Regions(std::byte* base, size_t alignment = 64) : base_(base), alignment_(alignment) {}
  template <class T> T* take(int64_t count) {
    T* region = base_ ? reinterpret_cast<T*>(base_ + size_) : nullptr;
    size_ += round_up(static_cast<size_t>(count) * sizeof(T), alignment_);
    return region;
  }
  size_t size() const { return size_; }
  std::byte* rest() const { return base_ + size_; }

 private:
  std::byte* base_;
  size_t alignment_, size_ = 0;
};
}  // namespace linnet
