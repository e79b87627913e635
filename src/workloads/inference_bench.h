// How fast an encoder answers: latency and throughput by batch, length and precision of the weights.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace linnet {

struct InferenceBenchOptions {
  std::string folder;  // a BERT folder; empty: the sizes of MiniLM-L6 with random weights
  std::vector<int64_t> batches = {1, 8, 32}, lengths = {32, 128, 512};
  // "fp32", "bf16" or a word of parse_quantization().
  std::vector<std::string> precisions = {"fp32", "bf16", "int8", "int8-weights", "int4-weights"};
  double seconds = 1;  // to measure each row
  int threads = 1;
};

struct InferenceRow {
  std::string precision;
  int64_t batch, length;
  double p50, p95, p99;      // seconds a batch
  double sequences;          // a second, at the median
  double load_seconds;       // planning, reading and packing, of this precision's whole table
  double weight_mb, memory;  // MB of weights, and of all planned memory, for all rows of this precision
  int64_t runs;
};

// Precisions take turns row by row, in their order, so that a busy machine slows all of them alike. `hear` gets each
// row when it is measured. User error for a folder that holds no encoder, and for lengths that it does not take.
std::vector<InferenceRow> measure_inference(const InferenceBenchOptions& options,
                                            const std::function<void(const InferenceRow&)>& hear);

}  // namespace linnet
