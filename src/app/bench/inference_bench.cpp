#include <algorithm>
#include <cmath>
#include <filesystem>
#include "app/bench/bench.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/timeline.h"
#include "data/examples/text/parallel_text.h"
#include "engine/kernels/processor.h"
#include "engine/plan/store.h"
#include "generation/engine.h"
#include "models/families/static_scales.h"
#include "models/modules/text_decoder.h"
#include "models/modules/text_encoder.h"
#include "models/nn/activation_observer.h"
#include "models/nn/forward.h"
#include "models/nn/model_store.h"
#include "models/nn/parameter_file.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {
constexpr int64_t kRounds = 5, kFewestRuns = 5;

// A word of InferenceBenchOptions::precisions with its model.
struct Choice {
  Choice(const std::string& text, const std::string& model)
      : word(text.substr(0, text.find('='))), folder(word.size() < text.size() ? text.substr(word.size() + 1) : model) {
  }
  std::string word, folder;
};

struct MeasuredEncoder {
  MeasuredEncoder(const InferenceBenchOptions& options, const Choice& choice, const WeightQuantization& quantization)
      : precision(choice.word), folder(choice.folder) {
    const double began = now();
    if (folder.empty()) {
      const EncoderConfig minilm{.width = 384, .heads = 12, .layers = 6, .hidden = 1536};
      drawn = std::make_unique<SentenceEncoder>(minilm);
      encoder = drawn.get();
    } else {
      opened = open_pretrained(folder, {.head = ModelHead::kNone});
      encoder = &opened.as<SentenceEncoder>();
    }
    const int64_t longest = encoder->encoder.config.max_seq_len;
    std::vector<Forward::Function> functions;
    for (const int64_t batch : options.batches)
      for (const int64_t length : options.lengths) {
        if (length > longest) fail_user("a length of ", length, ", and the model takes ", longest);
        functions.emplace_back([this, batch, length](Trace& trace) {
          const Tensor tokens = trace.input("tokens", {DType::kI32, {batch, length}});
          const Tensor lengths = trace.input("lengths", {DType::kI32, {batch}});
          trace.graph().output("embeddings", (*encoder)(tokens, lengths));
        });
      }
    forward = std::make_unique<Forward>(*encoder, functions,
        ForwardOptions{.threads = options.threads,
            .quantization = quantization,
            .device = options.device,
            .pack_weights = !is_packed(folder)});  // as in SentenceEmbedder
    forward->load(folder, [this](const ParameterLayout& layout, const ParameterTarget& parameters) {
      drawn ? draw(layout, parameters) : load_parameters(opened, layout, parameters);
    });
    load_seconds = now() - began;
    const ParameterLayout& layout = forward->layout();
    weight_mb =
        (4.0 * static_cast<double>(layout.stored_count()) + static_cast<double>(layout.quantized_bytes())) / 1e6;
  }

  static void draw(const ParameterLayout& layout, const ParameterTarget& parameters) {
    for (const ParameterSlot& slot : layout.parameters()) initialize(slot.spec, 1, parameters.flat + slot.offset);
  }

  void set_batch(int64_t batch, int64_t length) {
    std::vector<int32_t> tokens(batch * length);
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

// Activation scales for the texts of the first row: speed does not depend on them.
std::map<std::string, float> observed_scales(InferenceBenchOptions options, const std::string& folder) {
  options.batches.resize(1), options.lengths.resize(1), options.device = "cpu";
  const auto observer = std::make_shared<ActivationObserver>();
  MeasuredEncoder encoder(options, Choice("fp32", folder), {.observer = observer});
  encoder.set_batch(options.batches[0], options.lengths[0]);
  encoder.forward->run();
  return observer->scales(CalibrationMethod::kMinMax);
}

WeightQuantization quantization_for(const std::string& folder, const std::string& precision) {
  const WeightQuantization asked = parse_quantization(precision == "fp32" ? "none" : precision);
  if (folder.empty()) return asked;
  const WeightQuantization kept = quantization_of(folder, asked);
  if (!asked.any() && kept.any()) fail_user("'", folder, "' is packed in another precision than ", precision);
  return kept;
}

WeightQuantization quantization_for(const InferenceBenchOptions& options, const Choice& choice) {
  const auto& [word, folder] = choice;
  const bool is_static = word == "static" || word == "qat";
  WeightQuantization quantization = quantization_for(folder, is_static ? "int8" : word);
  if (!is_static) return quantization;
  const auto scales = folder.empty() ? std::nullopt : read_static_scales(folder);
  if (word == "qat" && (!scales || scales->method != "training"))
    fail_user("qat=FOLDER names a model that was trained with quantize = \"int8\"; '", folder, "' was not");
  if (scales) quantization.keep.insert(quantization.keep.end(), scales->keep.begin(), scales->keep.end());
  quantization.input_scales = scales ? scales->input_scales : observed_scales(options, folder);
  return quantization;
}

// A "static" row must be static.
void check_scales(const MeasuredEncoder& encoder) {
  if (encoder.precision != "static" && encoder.precision != "qat") return;
  for (const QuantizedSlot& slot : encoder.forward->layout().quantized())
    if (slot.input_scale > 0) return;
  fail_user("the scales of '", encoder.folder, "' are not of this model's layers");
}

// The smallest of the sorted values that at least this fraction of them does not exceed.
double percentile(const std::vector<double>& sorted, double fraction) {
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

// A folder's decoder, or if empty GPT-2's 124M with random weights, with a generator of one text.
struct BenchDecoder {
  BenchDecoder(const std::string& folder, const WeightQuantization& quantization, const CausalOptions& options)
      : opened(folder.empty() ? PretrainedModel{} : open_pretrained(folder)),
        drawn(folder.empty() ? std::make_unique<TextDecoder>(DecoderConfig{}) : nullptr),
        model(drawn ? *drawn : opened.as<TextDecoder>()), layout(model, {}, quantization), pool(options.threads) {
    if (options.max_length > model.max_length())
      fail_user(options.max_length, " tokens with the prompt's, and the model takes ", model.max_length());
    const SharedRegions shared = declare_model(store, layout);
    generator = std::make_unique<CausalGenerator>(model, layout, store, shared, options);
    store.allocate();
    store.touch();
    generator->bind();
    layout.initialize_constants(store.as<float>(state::kConstants), pool);
    const auto file = folder.empty() ? nullptr : ParameterFile::open(folder);
    if (file && file->load(store, layout, pool)) return;
    if (!drawn) {
      load_into(store, layout, pool,
          [this](const ParameterTarget& parameters) { load_parameters(opened, layout, parameters); });
      return;
    }
    layout.initialize_parameters(1, store.as<float>(state::kParameters), pool);
    initialize_quantized(store, layout, 1, pool);
  }
  // Picks the likeliest tokens; the prompt repeats one token.
  void write(int64_t prompt, int64_t tokens, const CausalGenerator::Listener& listener) {
    const std::vector<std::vector<int32_t>> prompts{std::vector<int32_t>(static_cast<size_t>(prompt), 17)};
    generator->generate(prompts, {.max_tokens = tokens, .sampling = {.temperature = 0}}, pool, listener);
  }
  double weight_bytes() const {  // read for a token
    return sum_of<double>(layout.parameters(), [&](const ParameterSlot& slot) {
      if (model.is_looked_up(slot.spec)) return 0.0;  // only one row is read
      return layout.is_quantized(slot) ? static_cast<double>(layout.quantized_slot(slot).shape.bytes())
                                       : 4.0 * static_cast<double>(slot.spec.shape.elements());
    });
  }

  PretrainedModel opened;
  std::unique_ptr<TextDecoder> drawn;
  TextDecoder& model;
  ParameterLayout layout;
  Store store;
  ThreadPool pool;
  std::unique_ptr<CausalGenerator> generator;
};

constexpr int64_t kFewestTexts = 3;

class Decoder {
 public:
  Decoder(const DecodingBenchOptions& options, const std::string& precision)
      : began_(now()), room_(kGenerationPrompt + options.tokens),
        decoder_(options.folder, quantization_for(options.folder, precision),
            {.max_length = room_, .prompt_lengths = {kGenerationPrompt}, .threads = options.threads}) {
    row_.precision = precision, row_.load_seconds = now() - began_, row_.file_mb = weight_file_mb(options.folder);
    row_.weight_mb = decoder_.weight_bytes() / 1e6,
    row_.memory = static_cast<double>(decoder_.store.total_bytes()) / 1e6;
  }

  // Writes a text; `counts`: includes it in the results.
  void write(int64_t tokens, bool counts) {
    double first = 0, last = 0;
    int64_t written = 0;
    decoder_.write(kGenerationPrompt, tokens, [&](int64_t, int32_t) {
      const double time = now();
      if (written++ == 0) first = time;
      else if (counts) times_.push_back(time - last);
      last = time;
      return true;
    });
    if (counts && written > 1) texts_.push_back((last - first) / static_cast<double>(written - 1));
  }

  ThreadPool& pool() { return decoder_.pool; }
  int64_t texts() const { return std::ssize(texts_); }

  DecodingRow row(double bandwidth) {
    std::ranges::sort(times_);
    std::ranges::sort(texts_);
    const double median = percentile(texts_, 0.5);
    // On average half of the room is in the cache.
    const double bytes = row_.weight_mb * 1e6 + cache_bytes() * static_cast<double>(kGenerationPrompt + room_) / 2;
    row_.p50 = percentile(times_, 0.5), row_.p95 = percentile(times_, 0.95), row_.p99 = percentile(times_, 0.99);
    row_.tokens_per_second = 1 / median, row_.share_of_bound = bytes / bandwidth / median, row_.texts = texts();
    return row_;
  }

 private:
  double cache_bytes() const {  // per position
    size_t bytes = 0;
    for (const Store::Region& region : decoder_.store.regions())
      if (region.kind == MemoryKind::kCache) bytes += region.bytes;
    return static_cast<double>(bytes) / static_cast<double>(room_);
  }

  double began_;
  int64_t room_;
  BenchDecoder decoder_;
  std::vector<double> times_, texts_;  // seconds per token: of each token, and the mean of each text
  DecodingRow row_{};
};

constexpr int64_t kUncachedStep = 64;

void tell(int64_t tokens, const char* how, double seconds) {
  log_info(printed("%lld tokens %s: %.1f s", static_cast<long long>(tokens), how, seconds));
}

void measure_cached(GenerationMeasurement& m, int threads, int64_t most, const WeightQuantization& quantization) {
  const CausalOptions options{
      .max_length = kGenerationPrompt + most, .prompt_lengths = {kGenerationPrompt}, .threads = threads};
  BenchDecoder writer({}, quantization, options);
  m.bandwidth = measured_bandwidth(writer.pool, size_t{512} << 20);
  m.weight_bytes = writer.weight_bytes();
  const double cache_entry = 4.0 * 2 * static_cast<double>(writer.model.config.layers * writer.model.config.width);
  writer.write(kGenerationPrompt, 2, {});  // warm up pages and caches
  const double began = now();
  int64_t written = 0;
  double bound = 0;
  writer.write(kGenerationPrompt, most, [&](int64_t, int32_t) {
    bound += (m.weight_bytes + cache_entry * static_cast<double>(kGenerationPrompt + written)) / m.bandwidth;
    ++written;
    for (GenerationRow& row : m.rows)
      if (row.tokens == written) {
        row.cached_seconds = now() - began, row.bound_seconds = bound;
        tell(written, "with the cache", row.cached_seconds);
      }
    return true;
  });
}

void measure_uncached(GenerationMeasurement& m, int threads, int64_t most, const WeightQuantization& quantization) {
  CausalOptions options{.max_length = kGenerationPrompt + most, .cache = false, .threads = threads};
  options.prompt_lengths =
      growing_sizes(kUncachedStep, options.max_length, [](int64_t length) { return length + kUncachedStep; });
  BenchDecoder writer({}, quantization, options);
  std::vector<double> seconds;
  for (const int64_t length : options.prompt_lengths) {
    const int64_t prompt = std::min(length, options.max_length - 1);
    double best = 1e30;
    for (int pass = 0; pass < 2; ++pass) {
      const double began = now();
      writer.write(prompt, 1, {});
      best = std::min(best, now() - began);
    }
    seconds.push_back(best);
    tell(length, "computed again for a token without it", best);
  }
  for (GenerationRow& row : m.rows)
    for (int64_t token = 0; token < row.tokens; ++token)
      row.uncached_seconds += seconds[(kGenerationPrompt + token - 1) / kUncachedStep];
}
}  // namespace

double weight_file_mb(const std::string& folder) {
  namespace fs = std::filesystem;
  if (folder.empty()) return 0;
  if (is_packed(folder)) return static_cast<double>(fs::file_size(folder)) / 1e6;
  double bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") bytes += static_cast<double>(entry.file_size());
  return bytes / 1e6;
}

std::vector<InferenceRow> measure_inference(
    const InferenceBenchOptions& options, const std::function<void(const InferenceRow&)>& hear) {
  std::vector<std::unique_ptr<MeasuredEncoder>> encoders;
  for (const std::string& text : options.precisions) {
    const Choice choice(text, options.folder);
    encoders.push_back(std::make_unique<MeasuredEncoder>(options, choice, quantization_for(options, choice)));
    check_scales(*encoders.back());
  }
  std::vector<InferenceRow> rows;
  size_t function = 0;
  for (const int64_t batch : options.batches)
    for (const int64_t length : options.lengths) {
      std::vector<std::vector<double>> times(encoders.size());
      for (const auto& encoder : encoders) {
        encoder->set_batch(batch, length);
        for (int i = 0; i < 2; ++i) encoder->forward->run(function);  // warms up caches; a GPU records the second run
      }
      for (int64_t round = 0; round < kRounds; ++round)
        for (size_t i = 0; i < encoders.size(); ++i) {
          const double end = now() + options.seconds / kRounds;
          do {
            const double began = now();
            encoders[i]->forward->run(function).output("embeddings");
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

DecodingMeasurement measure_decoding(const DecodingBenchOptions& options) {
  const std::vector<std::unique_ptr<Decoder>> decoders = mapped(
      options.precisions, [&](const std::string& precision) { return std::make_unique<Decoder>(options, precision); });
  DecodingMeasurement m{.bandwidth = measured_bandwidth(decoders.front()->pool(), size_t{256} << 20), .rows = {}};
  for (const auto& decoder : decoders) decoder->write(2, false);  // warm up pages
  std::vector<double> spent(decoders.size());
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < decoders.size(); ++i) {
      if (spent[i] >= options.seconds && decoders[i]->texts() >= kFewestTexts) continue;
      const double began = now();
      decoders[i]->write(options.tokens, true);
      spent[i] += now() - began;
      more = true;
    }
  }
  for (const auto& decoder : decoders) m.rows.push_back(decoder->row(m.bandwidth));
  return m;
}

GenerationMeasurement measure_generation(
    int threads, const std::vector<int64_t>& tokens, bool uncached, const WeightQuantization& quantization) {
  GenerationMeasurement m{};
  for (const int64_t count : tokens) m.rows.push_back({count, 0, 0, 0});
  const int64_t most = *std::max_element(tokens.begin(), tokens.end());
  measure_cached(m, threads, most, quantization);
  if (uncached) measure_uncached(m, threads, most, quantization);
  return m;
}

TranslationMeasurement measure_translation(
    const std::string& model, const std::string& source, const InferenceOptions& options) {
  const std::vector<std::string> lines = read_lines(source);
  const Config config = inference_config(model, options);
  if (const char* why = task_actions(config).no_translation) fail_user("'", model, "' ", why);
  const double began = now();
  Translator translator({model}, config);
  const double loaded = now();
  TranslationMeasurement measured{.load_seconds = loaded - began, .beam = config.train.beam};
  for (std::vector<Translation>& best : translator.translate(lines, 1))
    measured.translations.push_back(std::move(best.front().text));
  measured.seconds = translator.search_seconds();
  measured.token_seconds = now() - loaded - measured.seconds;
  return measured;
}
}  // namespace linnet
