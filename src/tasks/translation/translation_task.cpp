#include "tasks/translation/translation_task.h"

#include <malloc.h>

#include <algorithm>

#include "base/log.h"
#include "base/process_memory.h"
#include "models/modules/t5.h"
#include "training/run/pretrained_run.h"
#include "tasks/translation/corpus.h"

namespace linnet {

Buckets choose_buckets(const Config& config, const std::vector<std::pair<int, int>>& lengths) {
  return Buckets::choose(lengths, {.batch_tokens = config.data.batch_tokens,
                                   .batch_size = config.data.batch_size,
                                   .num_buckets = config.data.num_buckets,
                                   .max_seq_len = config.model.max_seq_len});
}

SessionOptions training_session_options(const Config& config, const Buckets& buckets) {
  SessionOptions options;
  options.shapes = buckets.shapes();
  if (config.train.metric != "loss")
    options.generation = {.beams = config.train.eval_beam, .longest_source = longest_source(options.shapes)};
  return options;
}

TranslationTask::TranslationTask(const Config& config, const std::string& from, Capacity capacity) : config(config) {
  Corpus corpus = load_training_corpus(config);
  model = !from.empty()                ? load_translation_run(config, from)
          : !config.model.from.empty() ? open_translation_folder(config, config.model.from)
                                       : make_translation_model(config, train_tokenizers(config, corpus.train));
  tokenizers = model.tokenizers;
  if (config.train.precision == "fp16" && dynamic_cast<const T5*>(model.model.get()))
    log_warning(
        "T5's feed-forward layers can exceed 65504, the most that fp16 holds, whatever the loss scale is; "
        "precision = \"bf16\" and \"fp32\" do not overflow");
  train =
      std::make_unique<PairDataset>(corpus.train, *tokenizers.source, *tokenizers.target,
                                    PairLimits{.max_seq_len = config.model.max_seq_len, .special = tokenizers.special});
  valid = std::make_unique<EvaluationSet>(std::move(corpus.valid), tokenizers, config.model.max_seq_len);
  corpus = {};
  log_info("training text: " + train->report().text());
  log_info("validation text: " + valid->dataset.report().text());
  // A validation pair longer than any in training still needs a batch to be in.
  std::vector<std::pair<int, int>> lengths = train->lengths();
  for (const auto& pair : valid->dataset.lengths()) lengths.push_back(pair);
  buckets = std::make_unique<Buckets>(choose_buckets(config, lengths));

  SessionOptions options = training_session_options(config, *buckets);
  options.verify_plans = capacity == Capacity::kMustSuffice;
  session = std::make_unique<TranslationSession>(config, model, std::move(options));
  if (allocate_within(*session, "; a smaller batch_tokens or batch_size needs less (see `linnet plan`)", capacity)) {
    stream = std::make_unique<BatchStream>(*train, *buckets, static_cast<uint64_t>(config.train.seed));
  }
  malloc_trim(0);  // what loading and planning freed should not count
  forecast_ = forecast_memory(resident_bytes(), session->store);
}

const PretrainedModel* TranslationTask::starts_from() const {
  return model.pretrained && !model.pretrained->folder.empty() ? &*model.pretrained : nullptr;
}

void TranslationTask::initialize() {
  trainer().initialize();
  if (const PretrainedModel* from = starts_from()) load_initial_weights(trainer(), *from, config);
}

Evaluation TranslationTask::evaluate(SharedWork& ranks) {
  const double loss = mean_loss(*session, *valid, *buckets, ranks);
  std::vector<std::string> translations;
  if (session->generator) {
    const int64_t all = valid->dataset.size(), wanted = config.train.eval_pairs;
    translations = translate(*session, *valid, wanted > 0 ? std::min(wanted, all) : all, ranks);
  }
  Evaluation result = score(*valid, translations, loss);
  ++evaluations_;
  for (size_t i = 0; i < 2 && i < translations.size(); ++i) {  // others from one evaluation to the next
    const size_t pick =
        (static_cast<size_t>(evaluations_) * 7919 + i * (translations.size() / 2 + 1)) % translations.size();
    result.samples.push_back("    " + valid->text.source[pick] + "\n -> " + translations[pick]);
  }
  return result;
}

}  // namespace linnet
