// How fast a decoder writes one text, in several precisions of its weights.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace linnet {

struct DecodingBenchOptions {
  std::string folder;  // a decoder-only model; empty: GPT-2's 124M with random weights
  std::vector<std::string> precisions = {"fp32", "bf16", "int8", "int8-weights", "int4-weights"};  // or "fp32" alone
  int64_t tokens = 128;  // written behind a prompt of kGenerationPrompt (generation_bench.h)
  double seconds = 5;    // to measure each precision
  int threads = 1;
};

struct DecodingRow {
  std::string precision;
  double p50, p95, p99;      // seconds a token, behind the first
  double tokens_per_second;  // of the median text
  double share_of_bound;     // of the tokens a second that reading weights and cache once for each allows
  double load_seconds;       // planning, reading and packing
  double file_mb;            // as in InferenceRow
  double weight_mb, memory;  // MB of weights that a token reads, and of all planned memory
  int64_t texts;
};

struct DecodingMeasurement {
  double bandwidth;  // bytes a second, all threads reading memory
  std::vector<DecodingRow> rows;
};

// Precisions take turns text by text. User error for a folder that holds no decoder, and for more tokens than it takes.
DecodingMeasurement measure_decoding(const DecodingBenchOptions& options);

}  // namespace linnet
