// Divides a kernel's index range into tasks by shape alone, so that results are the same for any number of threads.
#pragma once
#include <algorithm>
#include <cstdint>
#include "base/thread_pool.h"

namespace linnet {
// A fork and join costs one to two microseconds, as long as some 16 thousand cheap elements on one core.
constexpr int64_t kSerialWork = 16384;
constexpr int64_t kTaskWork = 8192;

// body(begin, end) over ranges that cover [0, count) once. `work`: elements touched per index.
template <class Body> void for_ranges(ThreadPool& pool, int64_t count, int64_t work, const Body& body) {
  if (count <= 0) return;
  work = std::max<int64_t>(work, 1);
  if (count * work <= kSerialWork) return body(int64_t{0}, count);
  const int64_t grain = std::max<int64_t>(kTaskWork / work, 1);
  pool.run(
      (count + grain - 1) / grain, [&](int64_t task, int) { body(task * grain, std::min(count, (task + 1) * grain)); });
}

// Sums over rows are cut into this many chunks of consecutive rows, whose partial sums are added in order.
inline int64_t row_chunks(int64_t rows) { return std::clamp<int64_t>((rows + 63) / 64, 1, 32); }
}  // namespace linnet
