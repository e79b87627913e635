// Throughput and memory of a workload by its batch.
#pragma once
#include "app/bench/measure.h"

namespace linnet {
struct BatchPoint {
  int64_t batch;
  Measurement measured;
};

struct BatchSweep {
  std::vector<BatchPoint> points;  // in ascending order
  int64_t knee = 0;                // the smallest batch with 90% of the highest throughput
  int64_t largest = 0;             // largest batch whose planned memory is within the limit; 0: none
};

// Measures batches whose planned memory is at most `limit` bytes; calls on_point after each.
BatchSweep sweep_batches(const std::string& workload, WorkloadOptions options, std::vector<int64_t> batches,
    const MeasureOptions& measuring, uint64_t limit, uint64_t resident_at_start,
    const std::function<void(const BatchPoint&)>& on_point);

// An SVG chart of throughput, with the knee marked, and planned memory by batch.
std::string batch_chart(const std::string& title, const std::string& unit, const BatchSweep& sweep);
}  // namespace linnet
