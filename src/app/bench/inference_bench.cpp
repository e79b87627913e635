#include "app/bench/inference_bench.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "base/packed_files.h"
#include "models/families/pretrained.h"
#include "models/families/static_scales.h"
#include "models/modules/text_encoder.h"
#include "models/nn/activation_observer.h"
#include "models/nn/forward.h"
#include "models/nn/parameter_file.h"

namespace linnet {
namespace {

constexpr int64_t kRounds = 5, kFewestRuns = 5;

EncoderConfig minilm() { return {.width = 384, .heads = 12, .layers = 6, .hidden = 1536}; }

// A word of InferenceBenchOptions::precisions, and the model it is measured with.
struct Choice {
  Choice(const std::string& text, const std::string& model)
      : word(text.substr(0, text.find('='))),
        folder(word.size() < text.size() ? text.substr(word.size() + 1) : model) {}
  std::string word, folder;
};

// One precision's plans, for every batch and length.
struct Encoder {
  Encoder(const InferenceBenchOptions& options, const Choice& choice, const WeightQuantization& quantization)
      : precision(choice.word), folder(choice.folder) {
    const double began = now();
    if (folder.empty()) {
      drawn = std::make_unique<SentenceEncoder>(minilm());
      encoder = drawn.get();
    } else {
      opened = open_pretrained(folder, {.head = ModelHead::kNone});
      encoder = &opened.as<SentenceEncoder>();
    }
    const int64_t longest = encoder->encoder.config.max_seq_len;
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
    const bool is_file = !folder.empty() && is_packed(folder);
    forward =
        std::make_unique<Forward>(*encoder, functions,
                                  ForwardOptions{.threads = options.threads,
                                                 .quantization = quantization,
                                                 .precision = precision == "bf16" ? Precision::kBf16 : Precision::kF32,
                                                 .pack_weights = !is_file});  // as in SentenceEmbedder
    const ParameterLayout& layout = forward->layout();
    const auto file = is_file ? ParameterFile::open(folder) : nullptr;
    if (!file || !forward->load(*file))
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
      tokens[i] = static_cast<int32_t>((i * 7919 + 101) % static_cast<size_t>(encoder->encoder.config.vocab_size));
    forward->set("tokens", tokens);
    forward->set("lengths", std::vector<int32_t>(static_cast<size_t>(batch), static_cast<int32_t>(length)));
  }

  std::string precision, folder;
  PretrainedModel opened;
  std::unique_ptr<SentenceEncoder> drawn;
  SentenceEncoder* encoder = nullptr;
  std::unique_ptr<Forward> forward;
  double load_seconds = 0, weight_mb = 0;
};

// The scales that the texts of the first row need: speed does not depend on them.
std::map<std::string, float> observed_scales(InferenceBenchOptions options, const std::string& folder) {
  options.batches.resize(1), options.lengths.resize(1);
  const auto observer = std::make_shared<ActivationObserver>();
  Encoder encoder(options, Choice("fp32", folder), {.observer = observer});
  encoder.set_batch(options.batches[0], options.lengths[0]);
  encoder.forward->run();
  return observer->scales(CalibrationMethod::kMinMax);
}

WeightQuantization quantization_for(const InferenceBenchOptions& options, const Choice& choice) {
  const auto& [word, folder] = choice;
  const bool is_static = word == "static" || word == "qat", is_plain = word == "fp32" || word == "bf16";
  WeightQuantization quantization = parse_quantization(is_plain ? "none" : is_static ? "int8" : word);
  if (!folder.empty()) quantization = quantization_of(folder, quantization);
  if (is_plain && quantization.any()) fail_user("'" + folder + "' is packed in another precision than " + word);
  if (!is_static) return quantization;
  const auto scales = folder.empty() ? std::nullopt : read_static_scales(folder);
  if (word == "qat" && (!scales || scales->method != "training"))
    fail_user("qat=FOLDER names a model that was trained with quantize = \"int8\"; '" + folder + "' was not");
  if (scales) quantization.keep.insert(quantization.keep.end(), scales->keep.begin(), scales->keep.end());
  quantization.input_scales = scales ? scales->input_scales : observed_scales(options, folder);
  return quantization;
}

// A row that says static must be static.
void check_scales(const Encoder& encoder) {
  if (encoder.precision != "static" && encoder.precision != "qat") return;
  for (const QuantizedSlot& slot : encoder.forward->layout().quantized())
    if (slot.input_scale > 0) return;
  fail_user("the scales of '" + encoder.folder + "' are not of this model's layers");
}

}  // namespace

double percentile(const std::vector<double>& sorted, double fraction) {
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

double weight_file_mb(const std::string& folder) {
  namespace fs = std::filesystem;
  if (folder.empty()) return 0;
  if (is_packed(folder)) return static_cast<double>(fs::file_size(folder)) / 1e6;
  double bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") bytes += static_cast<double>(entry.file_size());
  return bytes / 1e6;
}

std::vector<InferenceRow> measure_inference(const InferenceBenchOptions& options,
                                            const std::function<void(const InferenceRow&)>& hear) {
  std::vector<std::unique_ptr<Encoder>> encoders;
  for (const std::string& text : options.precisions) {
    const Choice choice(text, options.folder);
    encoders.push_back(std::make_unique<Encoder>(options, choice, quantization_for(options, choice)));
    check_scales(*encoders.back());
  }
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
                        .file_mb = weight_file_mb(encoders[i]->folder),
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
