// `linnet bench NAME --sweep batch=1,2,4`: the table, JSON and chart of a sweep over batches.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/bench/measure.h"

namespace linnet {

struct SweepRequest {
  std::string workload, values;  // "batch=1,2,4"
  std::string chart;             // a file for the SVG; empty: none
  bool json = false;
  double dropout = -1;
};

// "1,2,4" -> {1, 2, 4}; empty when it is not such a list of numbers above 0.
std::vector<int64_t> positive_numbers(std::string_view text);

// User error for values that are not batches. `limit`: bytes that there are.
void print_batch_sweep(const SweepRequest& request, const MeasureOptions& measuring, uint64_t limit,
                       uint64_t resident_at_start);

}  // namespace linnet
