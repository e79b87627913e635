#include "tasks/language/language_session.h"

#include <algorithm>

#include "base/error.h"
#include "data/metrics/word_count.h"

namespace linnet {
namespace {

ChunkOptions chunk_options(const Config& config, const CausalModel& model, const LanguageOptions& language) {
  ChunkOptions options;
  if (language.packed)
    options.separator = language.documents.begin, options.separator_ends = language.documents.begin_ends;
  options.length = config.data.context > 0 ? config.data.context : model.max_length();
  if (options.length > model.max_length())
    fail_user("context = " + std::to_string(options.length) + ", and the model takes " +
              std::to_string(model.max_length()) + " tokens");
  options.rows = config.data.batch_size > 0 ? config.data.batch_size : config.data.batch_tokens / options.length;
  if (options.rows < 1)
    fail_user("batch_tokens = " + std::to_string(config.data.batch_tokens) + " does not hold one chunk of " +
              std::to_string(options.length) + " tokens");
  return options;
}

constexpr int64_t kSampleContext = 1024;  // of samples written while training
constexpr int64_t kProbeLength = 16;      // of the loss by which tensor parallel divides the model
constexpr int64_t kDropEvery = 64;        // batches of a mapped file between looks at what it holds of our memory

}  // namespace

LanguageSession::LanguageSession(const Config& config, std::shared_ptr<CausalModel> causal_model,
                                 const LanguageOptions& options)
    : Session(config, *causal_model, options.training, options.verify_plans,
              [&model = *causal_model](Trace& trace) {
                return causal_loss(model, trace, 1, std::min<int64_t>(model.max_length(), kProbeLength));
              }),
      chunks(chunk_options(config, *causal_model, options)),
      packed(options.packed),
      model(std::move(causal_model)) {
  const double smoothing = training ? config.train.label_smoothing : 0;
  plan(token_inputs(chunks, packed), {[this, smoothing](Trace& trace) {
         return causal_loss(*model, trace, chunks.rows, chunks.length, packed, smoothing);
       }});
  if (options.sample_length == 0) return;
  generator =
      std::make_unique<CausalGenerator>(*model, layout, store, shared,
                                        CausalOptions{.max_length = std::min(model->max_length(), kSampleContext),
                                                      .flat_name = trainer->evaluated_state(),
                                                      .threads = trainer->options().threads,
                                                      .verify_plans = options.verify_plans,
                                                      .cache_in_arena = true});
}

void LanguageSession::allocate() {
  Session::allocate();
  if (generator) generator->bind();
}

Evaluation LanguageSession::evaluate(const LanguageText& text) {
  SharedWork alone = SharedWork::alone();
  return evaluate(text, alone);
}

Evaluation LanguageSession::evaluate(const LanguageText& text, SharedWork& ranks) {
  TokenBuffer buffer(chunks, packed);
  double nats = 0;
  int64_t tokens = 0;
  int64_t done = 0;
  const std::vector<double> found =
      ranks.numbers(scoring_batches(text.tokens, chunks), 2, [&](int64_t index, std::span<double> result) {
        fill_scoring_batch(text.tokens, chunks, index, buffer.arrays());
        const LossTotal total = trainer->evaluate(buffer.batch());
        result[0] = total.sum, result[1] = static_cast<double>(total.tokens);
        if (++done % kDropEvery == 0) text.tokens.drop_pages();
      });
  for (size_t i = 0; i < found.size(); i += 2) nats += found[i], tokens += static_cast<int64_t>(found[i + 1]);
  Evaluation result{nats / static_cast<double>(tokens), tokens, {}, {}};
  result.metrics = {{"perplexity", perplexity(nats, tokens)}};
  if (text.words > 0) {
    result.metrics.emplace_back("word_perplexity", perplexity(nats, text.words));
    result.metrics.emplace_back("words", static_cast<double>(text.words));
  }
  return result;
}

}  // namespace linnet
