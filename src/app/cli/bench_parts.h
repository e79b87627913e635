// Parts of `linnet bench`, each in a file of its own.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>
#include "app/bench/measure.h"

namespace linnet {

// `linnet bench NAME --sweep batch=1,2,4`: the table, JSON and chart of a sweep over batches.

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

// `linnet bench network --ranks N`: how fast ranks exchange messages, as --network of `linnet plan` takes it.

// `ranks` above 0: starts so many on this machine. Otherwise measures with the ranks that a starter has begun.
// `threads`: of each rank, which compute when it is measured whether messages move meanwhile; 0: as many as there are
// processors. Returns the exit code.
int bench_network(int ranks, int threads, bool json);

// `linnet bench infer`: tables, JSON and chart of encoders and decoders at inference.

struct InferRequest {
  std::string model;                         // a folder or packed model; "gpt2-124m"; empty: MiniLM's sizes
  std::string batches, lengths, precisions;  // lists; empty: the default
  std::string chart;                         // a file for the SVG; empty: none
  double seconds = 5;
  bool json = false;
};

int bench_infer(const InferRequest& request, int threads);

}  // namespace linnet
