#include "workloads/inference_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "models/bert.h"
#include "nn/forward.h"
#include "pretrained/pretrained.h"

namespace linnet {
namespace {

constexpr int64_t kRounds = 5, kFewestRuns = 5;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

BertConfig minilm() { return {.width = 384, .heads = 12, .layers = 6, .hidden = 1536}; }

// One precision's plans, for every batch and length.
struct Encoder {
  Encoder(const InferenceBenchOptions& options, const std::string& precision) : precision(precision) {
    const double began = now();
    if (options.folder.empty()) {
      drawn = std::make_unique<SentenceEncoder>(minilm());
      encoder = drawn.get();
    } else {
      opened = open_pretrained(options.folder, {.architecture = "BertModel"});
      encoder = &opened.as<SentenceEncoder>();
    }
    const int64_t longest = encoder->bert.config.max_seq_len;
    std::vector<Forward::Function> functions;
    for (const int64_t batch : options.batches)
      for (const int64_t length : options.lengths) {
        if (length > longest)
          fail_user("a length of " + std::to_string(length) + ", and the model takes " + std::to_string(longest));
        functions.emplace_back([this, batch, length](Trace& trace) {
          const Tensor tokens = trace.input("tokens", {DType::kI32, {batch, length}});
          const Tensor lengths = trace.input("lengths", {DType::kI32, {batch}});
          trace.graph().output("embeddings", (*encoder)(tokens, lengths));
        });
      }
    const bool plain = precision == "fp32" || precision == "bf16";
    forward = std::make_unique<Forward>(
        *encoder, functions,
        ForwardOptions{.threads = options.threads,
                       .quantization = parse_quantization(plain ? "none" : precision),
                       .precision = precision == "bf16" ? Precision::kBf16 : Precision::kF32});
    const ParameterLayout& layout = forward->layout();
    forward->load([&](const ParameterTarget& parameters) {
      if (drawn) return draw(layout, parameters);
      load_parameters(opened, layout, parameters);
    });
    load_seconds = now() - began;
    weight_mb =
        (4.0 * static_cast<double>(layout.stored_count()) + static_cast<double>(layout.quantized_bytes())) / 1e6;
  }

  static void draw(const ParameterLayout& layout, const ParameterTarget& parameters) {
    for (const ParameterSlot& slot : layout.parameters())
      initialize(slot.spec.initializer, slot.spec.name, 1, slot.spec.shape,
                 {parameters.flat + slot.offset, static_cast<size_t>(slot.spec.shape.elements())});
  }

  void set_batch(int64_t batch, int64_t length) {
    std::vector<int32_t> tokens(static_cast<size_t>(batch * length));
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>((i * 7919 + 101) % static_cast<size_t>(encoder->bert.config.vocab_size));
    forward->set("tokens", tokens);
    forward->set("lengths", std::vector<int32_t>(static_cast<size_t>(batch), static_cast<int32_t>(length)));
  }

  std::string precision;
  PretrainedModel opened;
  std::unique_ptr<SentenceEncoder> drawn;
  SentenceEncoder* encoder = nullptr;
  std::unique_ptr<Forward> forward;
  double load_seconds = 0, weight_mb = 0;
};

// The smallest of sorted values that at least this fraction of them is no larger than.
double percentile(const std::vector<double>& sorted, double fraction) {
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace

std::vector<InferenceRow> measure_inference(const InferenceBenchOptions& options,
                                            const std::function<void(const InferenceRow&)>& hear) {
  std::vector<std::unique_ptr<Encoder>> encoders;
  for (const std::string& precision : options.precisions)
    encoders.push_back(std::make_unique<Encoder>(options, precision));
  std::vector<InferenceRow> rows;
  size_t function = 0;
  for (const int64_t batch : options.batches)
    for (const int64_t length : options.lengths) {
      std::vector<std::vector<double>> times(encoders.size());
      for (const auto& encoder : encoders) {
        encoder->set_batch(batch, length);
        encoder->forward->run(function);  // takes pages and fills caches
      }
      for (int64_t round = 0; round < kRounds; ++round)
        for (size_t i = 0; i < encoders.size(); ++i) {
          const double end = now() + options.seconds / kRounds;
          do {
            const double began = now();
            encoders[i]->forward->run(function);
            times[i].push_back(now() - began);
          } while (now() < end || static_cast<int64_t>(times[i].size()) < kFewestRuns * (round + 1) / kRounds);
        }
      for (size_t i = 0; i < encoders.size(); ++i) {
        std::ranges::sort(times[i]);
        const double p50 = percentile(times[i], 0.5);
        rows.push_back({.precision = encoders[i]->precision,
                        .batch = batch,
                        .length = length,
                        .p50 = p50,
                        .p95 = percentile(times[i], 0.95),
                        .p99 = percentile(times[i], 0.99),
                        .sequences = static_cast<double>(batch) / p50,
                        .load_seconds = encoders[i]->load_seconds,
                        .weight_mb = encoders[i]->weight_mb,
                        .memory = static_cast<double>(encoders[i]->forward->memory_bytes()) / 1e6,
                        .runs = static_cast<int64_t>(times[i].size())});
        hear(rows.back());
      }
      ++function;
    }
  return rows;
}

}  // namespace linnet
