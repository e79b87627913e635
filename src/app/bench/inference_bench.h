// Inference latency and throughput of encoders by batch, length and weight precision.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace linnet {
struct InferenceBenchOptions {
  std::string folder;  // a BERT folder or packed model; empty: the sizes of MiniLM-L6 with random weights
  std::vector<int64_t> batches = {1, 8, 32}, lengths = {32, 128, 512};
  // "fp32", "bf16" or a word of parse_quantization(); "static": static int8 with the folder's scales, or else those of
  // the measured texts; "qat": the same with trained scales. "=FOLDER" after a word selects that model for the row.
  std::vector<std::string> precisions = {"fp32", "bf16", "int8", "static", "int8-weights", "int4-weights"};
  double seconds = 1;  // for each row
  int threads = 1;
};

struct InferenceRow {
  std::string precision;
  int64_t batch, length;
  double p50, p95, p99;      // seconds per batch
  double sequences;          // per second, at the median
  double load_seconds;       // planning, reading and packing for all rows of this precision
  double file_mb;            // MB of the weight files; 0: random weights
  double weight_mb, memory;  // MB, for all rows of this precision; memory: all planned
  int64_t runs;
};

// Precisions take turns row by row, so that a busy machine slows them alike. `hear` gets each finished row. User error
// for a folder without encoder, unsupported lengths, and "qat" without trained scales.
std::vector<InferenceRow> measure_inference(
    const InferenceBenchOptions& options, const std::function<void(const InferenceRow&)>& hear);

// MB of a folder's *.safetensors, or of a packed model; 0 for an empty name.
double weight_file_mb(const std::string& folder);
// The smallest of the sorted values that at least this fraction of them does not exceed.
double percentile(const std::vector<double>& sorted, double fraction);

// Generation speed of one text by weight precision.

struct DecodingBenchOptions {
  std::string folder;  // a decoder-only model; empty: GPT-2's 124M with random weights
  std::vector<std::string> precisions = {"fp32", "bf16", "int8", "int8-weights", "int4-weights"};  // or "fp32" alone
  int64_t tokens = 128;  // generated after a prompt of kGenerationPrompt (generation_bench.h)
  double seconds = 5;    // for each precision
  int threads = 1;
};

struct DecodingRow {
  std::string precision;
  double p50, p95, p99;      // seconds per token, after the first
  double tokens_per_second;  // of the median text
  double share_of_bound;     // of the speed bound by reading weights and cache once per token
  double load_seconds;       // planning, reading and packing
  double file_mb;            // as in InferenceRow
  double weight_mb, memory;  // MB of weights read per token, and of all planned memory
  int64_t texts;
};

struct DecodingMeasurement {
  double bandwidth;  // bytes a second, all threads reading memory
  std::vector<DecodingRow> rows;
};

// Precisions take turns text by text. User error for a folder without decoder, or more tokens than it takes.
DecodingMeasurement measure_decoding(const DecodingBenchOptions& options);
}  // namespace linnet
