#include "app/language_session.h"

#include "app/memory_report.h"
#include "app/trainer_options.h"
#include "base/error.h"
#include "metrics/word_count.h"
#include "models/gpt.h"

namespace linnet {
namespace {

// A forgotten unit or an extra zero should be told before an hour of planning.
void check_size(const Config& config, int64_t vocab_size) {
  const auto d = static_cast<double>(config.model.d_model),
             layers = static_cast<double>(config.model.num_decoder_layers);
  const double rows = static_cast<double>(vocab_size) + static_cast<double>(config.model.max_seq_len);
  const double bytes = 4 * (d * rows + layers * 12 * d * d), available = static_cast<double>(available_memory());
  if (bytes > available)
    fail_user("the model's parameters alone take about " + std::to_string(static_cast<int64_t>(bytes / 1e6)) +
              " MB, and the machine has " + std::to_string(static_cast<int64_t>(available / 1e6)) + " MB available");
}

WindowOptions window_options(const Config& config, int32_t separator) {
  WindowOptions options{.separator = separator};
  options.length = config.data.context > 0 ? config.data.context : config.model.max_seq_len;
  options.rows = config.data.batch_size > 0 ? config.data.batch_size : config.data.batch_tokens / options.length;
  return options;
}

constexpr int64_t kDropEvery = 64;  // batches of a mapped file between looks at what it holds of our memory

}  // namespace

std::unique_ptr<CausalModel> make_causal_model(const Config& config, int64_t vocab_size) {
  check_size(config, vocab_size);
  const ModelConfig& m = config.model;
  return std::make_unique<Gpt>(GptConfig{.vocab_size = vocab_size,
                                         .max_seq_len = m.max_seq_len,
                                         .width = m.d_model,
                                         .heads = m.num_heads,
                                         .layers = m.num_decoder_layers,
                                         .dropout = m.dropout});
}

LanguageSession::LanguageSession(const Config& config, std::unique_ptr<CausalModel> causal_model,
                                 const LanguageOptions& options)
    : windows(window_options(config, options.separator)),
      packed(options.packed),
      model(std::move(causal_model)),
      layout(*model) {
  shared = {store.add_region("arena", MemoryKind::kActivations, 0),
            store.add_region("workspace", MemoryKind::kWorkspace, 0)};
  TrainerOptions train = trainer_options(config, options.training);
  train.verify_plans = options.verify_plans;
  trainer = std::make_unique<Trainer>(layout, store, shared, train);
  const size_t bytes = static_cast<size_t>(windows.rows * windows.length) * sizeof(int32_t);
  for (const char* name : {"tokens", "targets", "positions", "starts"}) {
    if (!packed && std::string_view(name) == "positions") break;
    store.bind(name, {store.add_region(name, MemoryKind::kBatch, bytes), 0}, bytes);
  }
  const auto loss = [this](double smoothing) {
    return [this, smoothing](Trace& trace) {
      return causal_loss(*model, trace, windows.rows, windows.length, packed, smoothing);
    };
  };
  if (options.training)
    trainer->add_shape(loss(config.train.label_smoothing));
  else
    trainer->add_evaluation_shape(loss(0));
}

void LanguageSession::allocate() {
  store.allocate();
  trainer->bind();
}

TokenBatch LanguageSession::batch() const {
  TokenBatch batch{store.as<int32_t>("tokens"), store.as<int32_t>("targets")};
  if (packed) batch.positions = store.as<int32_t>("positions"), batch.starts = store.as<int32_t>("starts");
  return batch;
}

Evaluation LanguageSession::evaluate(const LanguageText& text) {
  double nats = 0;
  int64_t tokens = 0;
  for (int64_t index = 0; index < scoring_batches(text.tokens, windows); ++index) {
    fill_scoring_batch(text.tokens, windows, index, batch());
    const LossTotal total = trainer->evaluate(0);
    nats += total.sum, tokens += total.tokens;
    if (index % kDropEvery == kDropEvery - 1) text.tokens.drop_pages();
  }
  Evaluation result{nats / static_cast<double>(tokens), tokens, {}, {}};
  result.metrics = {{"perplexity", perplexity(nats, tokens)}};
  if (text.words > 0) {
    result.metrics.emplace_back("word_perplexity", perplexity(nats, text.words));
    result.metrics.emplace_back("words", static_cast<double>(text.words));
  }
  return result;
}

}  // namespace linnet
