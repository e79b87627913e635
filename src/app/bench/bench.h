// What `linnet bench` measures: training steps with model, loss and generated data, inference, and charts of them.
#pragma once
#include <functional>
#include "base/functions.h"
#include "engine/kernels/precision.h"
#include "engine/ops/kernel.h"
#include "engine/ops/optimizer/optimizer.h"
#include "engine/profile/profile.h"
#include "models/nn/loss.h"
#include "models/nn/module.h"
#include "models/nn/trace.h"
#include "tasks/inference.h"
#include "training/trainer/trainer.h"
#include "training/trainer/training_state.h"

namespace linnet {
// One loss input for all batches: type.shape is [batches, ...].
struct WorkloadInput {
  std::string name;
  TensorType type;
  std::vector<std::byte> data;
};

// A training step. The data depend only on the workload, so another program can use the same (--write-data FILE).
struct Workload {
  std::string name = {}, description = {};
  std::string unit = {};       // "samples/s" or "tokens/s"
  double units_per_step = 0;   // samples or tokens, padding included
  bool forward_apart = false;  // measure the forward pass alone too
  std::shared_ptr<Module> model = {};
  LossFunction loss = {};
  std::vector<ParameterGroup> groups = {};
  OptimizerAttrs optimizer = {};  // Adam, by default as Kingma & Ba have it
  double learning_rate = 0;
  int64_t batches = 0;
  std::vector<WorkloadInput> inputs = {};
};

struct WorkloadOptions {
  double dropout = -1;  // below 0: the workload's own
  int64_t batch = 0;    // examples of a batch; 0: the workload's own
};

struct WorkloadRow {
  std::string name, description;
};

std::vector<WorkloadRow> workload_rows();
// User error naming the nearest if there is no such workload.
Workload make_workload(const std::string& name, WorkloadOptions options = {});

struct MeasureOptions {
  Precision precision = Precision::kF32;
  bool int8 = false;                                  // PassOptions::int8
  std::optional<Precision> attention_precision = {};  // if it differs
  bool store_fp32 = false;                            // store activations in fp32 with kBf16 too
  const Backend* backend = &cpu_backend();
  RecomputeMode recompute = RecomputeMode::kAuto;
  uint64_t memory = 0;         // most bytes to use; 0: no limit
  uint64_t memory_beside = 0;  // of them, unplanned: the program's own
  int threads = 1;
  double seconds = 5;  // of timed steps
  int64_t least = 3;   // fewest timed steps
  bool parts = true;   // time the forward pass and the update separately, if the workload asks for it
};

struct Measurement {
  int64_t steps = 0;
  double median = 0, min = 0, max = 0;  // in the workload's unit
  double seconds_per_step = 0;          // median
  double processor_seconds = 0;         // of all threads, a step; median
  double flop_per_step = 0;             // of the products, see OpDef::flops
  double forward_seconds = 0;           // 0: not measured
  double update_seconds = 0;            // clipping and optimizer
  double first_step_seconds = 0;        // from the process's start to the end of step 1
  double memory_mb = 0;                 // peak RSS less RSS at start; on a device: planned
  double predicted_mb = 0;
  double program_mb = 0;  // RSS beside planned memory, before that was touched, less RSS at start
  double saved_mb = 0;    // saved activations
  double planning_seconds = 0;
  double extra_work = 0;      // estimated share of recomputation
  std::string recomputation;  // empty: none
  int64_t parameters = 0;
  // Of a device that counts its energy, else 0: all of it, and what it draws when idle.
  double joules_per_unit = 0, idle_watts = 0;
  double first_loss = 0, last_loss = 0;
  DeviceChoices choices = {};
};

// `resident_at_start`: RSS of the process before it knew what to do.
Measurement measure(const Workload& workload, const MeasureOptions& options, uint64_t resident_at_start);

// Predicts a training step: predicted_mb, program_mb, saved_mb, planning_seconds, extra_work, recomputation. Allocates
// and runs nothing. User error if options.memory is too small for any plan.
Measurement plan_step(const Workload& workload, const MeasureOptions& options);

// Planned bytes of a training step, regardless of options.memory.
size_t planned_bytes(const Workload& workload, const MeasureOptions& options);

// A table of the step's time by op, slowest first.
std::string profile(const Workload& workload, const MeasureOptions& options);

// The same by module, phase and op, for `steps` steps after two others (engine/profile/profile.h).
ProfileSummary profiled(Trainer& trainer, int64_t steps, FunctionRef<void()> step);
ProfileSummary profile_layers(const Workload& workload, const MeasureOptions& options, int64_t steps);

void write_data(const Workload& workload, const std::string& path);

// Speed of encoders.
struct InferenceBenchOptions {
  std::string folder;  // a BERT folder or packed model; empty: the sizes of MiniLM-L6 with random weights
  std::vector<int64_t> batches = {1, 8, 32}, lengths = {32, 128, 512};
  // "fp32", "bf16" or a word of parse_quantization(); "static": static int8 with the folder's scales, or else those of
  // the measured texts; "qat": the same with trained scales. "=FOLDER" after a word selects that model for the row.
  std::vector<std::string> precisions = {"fp32", "bf16", "int8", "static", "int8-weights", "int4-weights"};
  double seconds = 1;  // for each row
  int threads = 1;
  std::string device = "cpu";
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
constexpr int64_t kGenerationPrompt = 8;  // tokens

// Generation speed of one text by weight precision.
struct DecodingBenchOptions {
  std::string folder;  // a decoder-only model; empty: GPT-2's 124M with random weights
  std::vector<std::string> precisions = {"fp32", "bf16", "int8", "int8-weights", "int4-weights"};  // or "fp32" alone
  int64_t tokens = 128;  // generated after a prompt of kGenerationPrompt
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

// Generation speed: GPT-2's 124M with random weights, one text, with and without the key-value cache.
struct GenerationRow {
  int64_t tokens;           // generated after a prompt of kGenerationPrompt
  double cached_seconds;    // includes the prompt
  double uncached_seconds;  // one timed pass for each padded length, times the tokens with that length
  double bound_seconds;     // reading weights and cache once a token at the measured bandwidth
};

struct GenerationMeasurement {
  double bandwidth;     // bytes a second, all threads reading memory
  double weight_bytes;  // read for a token
  std::vector<GenerationRow> rows;
};

GenerationMeasurement measure_generation(
    int threads, const std::vector<int64_t>& tokens, bool uncached = true, const WeightQuantization& quantization = {});

// Translation speed of an encoder-decoder on a file's lines, with loading and tokenization measured apart.
struct TranslationMeasurement {
  double load_seconds;   // reading, planning and packing
  double token_seconds;  // lines to tokens, and back
  double seconds;        // encoding and search
  int64_t beam;
  std::vector<std::string> translations;  // of the lines, in their order
};

// `model`: a run or model folder; `source`: a file of lines. User error for models without translation or bad files.
TranslationMeasurement measure_translation(
    const std::string& model, const std::string& source, const InferenceOptions& options);

// Of a chart as SVG, for light and dark pages.
struct Bar {
  std::string label;
  double value;      // at least 0
  std::string text;  // written after the bar
};

// Bars are scaled to the group's largest value. A label has the same color in all groups.
struct BarGroup {
  std::string name;
  std::vector<Bar> bars;
};

std::string bar_chart(const std::string& title, const std::vector<BarGroup>& groups);

// Throughput and memory of a workload by its batch.
struct BatchPoint {
  int64_t batch;
  Measurement measured;
};

struct BatchSweep {
  std::vector<BatchPoint> points;  // in ascending order
  int64_t knee = 0;                // the smallest batch with 90% of the highest throughput
  int64_t largest = 0;             // largest batch up to kMost whose planned memory is within the limit; 0: none
  static constexpr int64_t kMost = 1 << 14;
  std::string largest_text() const { return std::to_string(largest) + (largest < kMost ? "" : " or more"); }
};

// Measures batches whose planned memory is at most `limit` bytes; calls on_point after each.
BatchSweep sweep_batches(const std::string& workload, WorkloadOptions options, std::vector<int64_t> batches,
    const MeasureOptions& measuring, uint64_t limit, uint64_t resident_at_start,
    const std::function<void(const BatchPoint&)>& on_point);

// An SVG chart of throughput, with the knee marked, and planned memory by batch.
std::string batch_chart(const std::string& title, const std::string& unit, const BatchSweep& sweep);
}  // namespace linnet
