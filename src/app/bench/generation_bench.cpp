#include "app/bench/generation_bench.h"
#include <algorithm>
#include <cstdio>
#include <sstream>
#include "base/fail.h"
#include "base/log.h"
#include "base/timeline.h"
#include "engine/kernels/processor.h"
#include "engine/plan/state_names.h"
#include "models/nn/parameter_file.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {
constexpr int64_t kUncachedStep = 64;

void tell(int64_t tokens, const char* how, double seconds) {
  char text[100];
  std::snprintf(text, sizeof text, "%lld tokens %s: %.1f s", static_cast<long long>(tokens), how, seconds);
  log_info(text);
}

void measure_cached(GenerationMeasurement& m, int threads, int64_t most, const WeightQuantization& quantization) {
  const CausalOptions options{
      .max_length = kGenerationPrompt + most, .prompt_lengths = {kGenerationPrompt}, .threads = threads};
  BenchDecoder writer({}, quantization, options);
  m.bandwidth = measured_bandwidth(writer.pool, size_t{512} << 20);
  const DecoderConfig& config = writer.model.config;
  size_t positions = static_cast<size_t>(config.max_seq_len * config.width) * sizeof(float);
  for (const QuantizedSlot& slot : writer.layout.quantized())
    if (slot.slot.spec.name == writer.model.positions->weight.spec().name) positions = slot.shape.bytes();
  m.weight_bytes = 4 * static_cast<double>(writer.layout.stored_count()) +
                   static_cast<double>(writer.layout.quantized_bytes()) - static_cast<double>(positions);
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
  for (int64_t length = kUncachedStep; length < options.max_length; length += kUncachedStep)
    options.prompt_lengths.push_back(length);
  options.prompt_lengths.push_back(options.max_length);
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

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(read_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(std::move(line));
  if (lines.empty()) fail_user("'", path, "' has no lines to translate");
  return lines;
}
}  // namespace

BenchDecoder::BenchDecoder(
    const std::string& folder, const WeightQuantization& quantization, const CausalOptions& options)
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

void BenchDecoder::write(int64_t prompt, int64_t tokens, const CausalGenerator::Listener& listener) {
  const std::vector<std::vector<int32_t>> prompts{std::vector<int32_t>(static_cast<size_t>(prompt), 17)};
  generator->generate(prompts, {.max_tokens = tokens, .sampling = {.temperature = 0}}, pool, listener);
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
  const std::vector<std::string> lines = lines_of(source);
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
