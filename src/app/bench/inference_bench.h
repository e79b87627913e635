// How fast an encoder answers: latency and throughput by batch, length and precision of the weights.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace linnet {

struct InferenceBenchOptions {
  std::string folder;  // a BERT folder or packed model; empty: the sizes of MiniLM-L6 with random weights
  std::vector<int64_t> batches = {1, 8, 32}, lengths = {32, 128, 512};
  // "fp32", "bf16" or a word of parse_quantization(); "static": static int8 with the scales of the folder or, where it
  // has none, with those of the texts that are measured; "qat": the same of a folder whose scales were trained. With
  // "=FOLDER" behind the word the row is of that model.
  std::vector<std::string> precisions = {"fp32", "bf16", "int8", "static", "int8-weights", "int4-weights"};
  double seconds = 1;  // to measure each row
  int threads = 1;
};

struct InferenceRow {
  std::string precision;
  int64_t batch, length;
  double p50, p95, p99;      // seconds a batch
  double sequences;          // a second, at the median
  double load_seconds;       // planning, reading and packing, of this precision's whole table
  double file_mb;            // MB of the files that the weights were read from; 0: random weights
  double weight_mb, memory;  // MB of weights, and of all planned memory, for all rows of this precision
  int64_t runs;
};

// Precisions take turns row by row, in their order, so that a busy machine slows all of them alike. `hear` gets each
// row when it is measured. User error for a folder that holds no encoder, for lengths that it does not take, and for
// "qat" of a model whose scales were not trained.
std::vector<InferenceRow> measure_inference(const InferenceBenchOptions& options,
                                            const std::function<void(const InferenceRow&)>& hear);

// MB of a folder's *.safetensors, or of a packed model; 0 for an empty name.
double weight_file_mb(const std::string& folder);
// Of sorted values: the smallest that at least this fraction of them is no larger than.
double percentile(const std::vector<double>& sorted, double fraction);

// How fast a decoder writes one text, in several precisions of its weights.

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
