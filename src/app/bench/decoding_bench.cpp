#include "app/bench/decoding_bench.h"

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "engine/plan/state_names.h"
#include "app/bench/generation_bench.h"
#include "app/bench/inference_bench.h"
#include "base/error.h"
#include "engine/kernels/bandwidth.h"
#include "generation/causal_generator.h"
#include "models/families/pretrained.h"
#include "models/modules/text_decoder.h"
#include "models/nn/model_store.h"
#include "models/nn/parameter_file.h"

namespace linnet {
namespace {

constexpr int64_t kFewestTexts = 3;
constexpr int32_t kToken = 17;

WeightQuantization quantization_for(const std::string& folder, const std::string& precision) {
  const WeightQuantization asked = parse_quantization(precision == "fp32" ? "none" : precision);
  if (folder.empty()) return asked;
  const WeightQuantization kept = quantization_of(folder, asked);
  if (!asked.any() && kept.any()) fail_user("'" + folder + "' is packed in another precision than " + precision);
  return kept;
}

// A model in one precision, with a generator of one text.
class Decoder {
 public:
  Decoder(const DecodingBenchOptions& options, const std::string& precision)
      : began_(now()),
        opened_(options.folder.empty() ? PretrainedModel{} : open_pretrained(options.folder)),
        drawn_(options.folder.empty() ? std::make_unique<TextDecoder>(DecoderConfig{}) : nullptr),
        model_(drawn_ ? *drawn_ : opened_.as<TextDecoder>()),
        layout_(model_, {}, quantization_for(options.folder, precision)),
        pool_(options.threads),
        room_(kGenerationPrompt + options.tokens) {
    if (room_ > model_.max_length())
      fail_user(std::to_string(kGenerationPrompt) + " + " + std::to_string(options.tokens) +
                " tokens, and the model takes " + std::to_string(model_.max_length()));
    const SharedRegions shared = declare_model(store_, layout_);
    generator_ = std::make_unique<CausalGenerator>(
        model_, layout_, store_, shared,
        CausalOptions{.max_length = room_, .prompt_lengths = {kGenerationPrompt}, .threads = options.threads});
    store_.allocate();
    store_.touch();
    generator_->bind();
    layout_.initialize_constants(store_.as<float>(state::kConstants), pool_);
    const auto file = options.folder.empty() ? nullptr : ParameterFile::open(options.folder);
    if (!file || !file->load(store_, layout_, pool_))
      load_into(store_, layout_, pool_, [this](const ParameterTarget& parameters) { fill(parameters); });
    row_.precision = precision, row_.load_seconds = now() - began_, row_.file_mb = weight_file_mb(options.folder);
    row_.weight_mb = weight_bytes() / 1e6, row_.memory = static_cast<double>(store_.total_bytes()) / 1e6;
  }

  // Writes a text; with `counts` it is measured.
  void write(int64_t tokens, bool counts) {
    const std::vector<std::vector<int32_t>> prompts{std::vector<int32_t>(kGenerationPrompt, kToken)};
    double first = 0, last = 0;
    int64_t written = 0;
    generator_->generate(prompts, {.max_tokens = tokens, .sampling = {.temperature = 0}}, pool_, [&](int64_t, int32_t) {
      const double time = now();
      if (written++ == 0)
        first = time;
      else if (counts)
        times_.push_back(time - last);
      last = time;
      return true;
    });
    if (counts && written > 1) texts_.push_back((last - first) / static_cast<double>(written - 1));
  }

  ThreadPool& pool() { return pool_; }
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
  void fill(const ParameterTarget& parameters) {
    if (!drawn_) return load_parameters(opened_, layout_, parameters);
    const std::vector<ParameterSlot>& slots = layout_.parameters();
    pool_.run(std::ssize(slots), [&](int64_t i, int) {
      const auto& [spec, offset] = slots[static_cast<size_t>(i)];
      initialize(spec.initializer, spec.name, 1, spec.shape,
                 {parameters.flat + offset, static_cast<size_t>(spec.shape.elements())});
    });
  }

  double weight_bytes() const {
    double bytes = 0;
    for (const ParameterSlot& slot : layout_.parameters()) {
      if (model_.is_looked_up(slot.spec)) continue;  // one row of it is read
      bytes += layout_.is_quantized(slot) ? static_cast<double>(layout_.quantized_slot(slot).shape.bytes())
                                          : 4.0 * static_cast<double>(slot.spec.shape.elements());
    }
    return bytes;
  }
  double cache_bytes() const {  // of a position
    size_t bytes = 0;
    for (const Store::Region& region : store_.regions())
      if (region.kind == MemoryKind::kCache) bytes += region.bytes;
    return static_cast<double>(bytes) / static_cast<double>(room_);
  }

  double began_;
  PretrainedModel opened_;
  std::unique_ptr<TextDecoder> drawn_;
  TextDecoder& model_;
  ParameterLayout layout_;
  Store store_;
  ThreadPool pool_;
  int64_t room_;
  std::unique_ptr<CausalGenerator> generator_;
  std::vector<double> times_, texts_;  // seconds a token: of each, and the mean of each text
  DecodingRow row_{};
};

}  // namespace

DecodingMeasurement measure_decoding(const DecodingBenchOptions& options) {
  std::vector<std::unique_ptr<Decoder>> decoders;
  for (const std::string& precision : options.precisions)
    decoders.push_back(std::make_unique<Decoder>(options, precision));
  DecodingMeasurement m{.bandwidth = measured_bandwidth(decoders.front()->pool(), size_t{256} << 20), .rows = {}};
  for (const auto& decoder : decoders) decoder->write(2, false);  // takes pages
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

}  // namespace linnet
