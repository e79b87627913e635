// Trains translation models on sentence pairs.
#include "base/fail.h"
#include "base/log.h"
#include "config/config.h"
#include "data/examples/batch_stream.h"
#include "data/text/pretrained_tokenizer.h"
#include "models/families/transformer_family.h"
#include "models/modules/t5.h"
#include "tasks/session_task.h"
#include "tasks/task_table.h"
#include "tasks/translation/corpus.h"
#include "tasks/translation/translation_session.h"
#include "training/run/pretrained_run.h"

namespace linnet {
namespace {
constexpr int64_t kQuickSamples = 1'000'000;

// Batch shapes for the (source, target) lengths of all pairs that must fit.
Buckets choose_buckets(const Config& config, const std::vector<std::pair<int, int>>& lengths) {
  return Buckets::choose(lengths, {.batch_tokens = config.data.batch_tokens,
                                      .batch_size = config.data.batch_size,
                                      .num_buckets = config.data.num_buckets,
                                      .max_seq_len = config.model.max_seq_len});
}

// Told before the training rather than by the export after it.
void tell_of_export(const ModelConfig& model, bool joint_vocab) {
  std::string keys = "--set architecture=marian";
  if (model.norm != "post") keys += " --set norm=post";
  if (model.final_norm) keys += " --set final_norm=false";
  if (!model.tie_head) keys += " --set tie_head=true";
  if (joint_vocab && !model.share_embeddings) keys += " --set share_embeddings=true";
  log_info("`linnet export` can write this model as ONNX alone; transformers reads a Marian (" + keys + ")");
}

class TranslationTask : public SessionTask {
 public:
  explicit TranslationTask(const Config& config) : SessionTask(config) {}

  void open(const std::string& from) override {
    Corpus corpus = load_training_corpus(config_);
    model_ = !from.empty()                 ? load_translation_run(config_, from)
             : !config_.model.from.empty() ? open_translation_folder(config_, config_.model.from)
                                           : make_translation_model(config_, train_tokenizers(config_, corpus.train));
    const bool of_files = task_row(config_).origin == ExampleOrigin::kFiles;  // generated examples are for experiments
    if (of_files && from.empty() && config_.model.from.empty() && config_.model.architecture == "transformer")
      tell_of_export(config_.model, config_.data.joint_vocab);
    if (config_.train.precision == "fp16" && dynamic_cast<const T5*>(model_.model.get()))
      log_warning(
          "T5's feed-forward layers can exceed 65504, the most that fp16 holds, whatever the loss scale is; "
          "precision = \"bf16\" and \"fp32\" do not overflow");
    train_ = std::make_unique<PairDataset>(corpus.train, *tokenizers().source, *tokenizers().target,
        PairLimits{.max_seq_len = config_.model.max_seq_len, .frame = tokenizers().frame()});
    valid_ = std::make_unique<EvaluationSet>(std::move(corpus.valid), tokenizers(), config_.model.max_seq_len);
    log_info("training text: " + train_->report().text());
    log_info("validation text: " + valid_->dataset.report().text());
    // A validation pair longer than any training pair needs a batch shape too.
    lengths_ = train_->lengths();
    for (const auto& pair : valid_->dataset.lengths()) lengths_.push_back(pair);
  }

  std::string assume(const DataAtHand& data) override {
    constexpr size_t kPairs = 100'000;
    const int64_t longest = config_.model.max_seq_len;
    Config random = config_;
    random.data.task = "random", random.data.tokenizer = "char";
    random.data.train_samples = random.data.valid_samples = std::max<int64_t>(config_.data.vocab_size / 16, 64);
    model_ = config_.model.from.empty()
                 ? make_translation_model(config_, train_tokenizers(random, load_training_corpus(random).train))
                 : open_translation_folder(config_, config_.model.from);
    lengths_.assign(kPairs, {static_cast<int>(longest), static_cast<int>(longest)});
    // The text and its tokens.
    assumed_bytes_ = data.bytes + 4 * static_cast<uint64_t>(data.assumed_tokens(config_.data));
    return data.why_not + "; assuming batches of max_seq_len = " + std::to_string(longest) + " tokens.";
  }

  DataAtHand data_at_hand(bool exact) const override {
    const DataConfig& data = config_.data;
    if (task_row(config_).origin != ExampleOrigin::kFiles) {
      if (exact || data.train_samples <= kQuickSamples) return {.read = true};
      return {.why_not = std::to_string(data.train_samples) + " samples were not made (--exact makes them)"};
    }
    return linnet::data_at_hand("training text",
        {data_path(data, data.train_source), data_path(data, data.train_target), data_path(data, data.train_tsv)},
        exact);
  }

  std::unique_ptr<Session> make_session(const Config& config, bool verify) override {
    SessionOptions options;
    options.shapes = choose_buckets(config, lengths_).shapes();
    options.verify_plans = verify;
    if (config.train.metric != "loss")
      options.generation = {.beams = config.train.eval_beam, .longest_source = longest_source(options.shapes)};
    return std::make_unique<TranslationSession>(config, model_, std::move(options));
  }

  BatchSource& batches() override { return *stream_; }
  TaskEvaluation evaluate(const SharedWork& ranks) override {
    const double loss = mean_loss(session(), *valid_, *buckets_, ranks);
    std::vector<std::string> translations;
    if (session().generator) {
      const int64_t all = valid_->dataset.size(), wanted = config_.train.eval_pairs;
      translations = translate(session(), *valid_, wanted > 0 ? std::min(wanted, all) : all, ranks);
    }
    TaskEvaluation result = score(*valid_, translations, loss);
    for (size_t i = 0; i < 2 && i < translations.size(); ++i) {  // different ones in each evaluation
      const size_t pick = (static_cast<size_t>(earlier_evaluations + 1) * 7919 + i * (translations.size() / 2 + 1)) %
                          translations.size();
      result.samples.push_back("    " + valid_->text.source[pick] + "\n -> " + translations[pick]);
    }
    return result;
  }

  void save_assets(const std::string& folder) const override { model_.save_assets(folder); }

  int64_t most() const override { return int64_t{1} << 40; }  // tokens: every pair is in one batch
  int64_t least() const override { return config_.data.batch_tokens > 0 ? config_.model.max_seq_len : 1; }
  int64_t DataConfig::*batch_key() const override {
    return config_.data.batch_tokens > 0 ? &DataConfig::batch_tokens : &DataConfig::batch_size;
  }
  std::string batches_text(const Session& session) const override {
    const std::vector<BatchShape>& shapes = static_cast<const TranslationSession&>(session).shapes;
    const BatchShape& shape = shapes.back();
    return "up to " + std::to_string(shape.batch) + " x (" + std::to_string(shape.source_length) + " + " +
           std::to_string(shape.target_length) + ") tokens, " + std::to_string(shapes.size()) + " shapes";
  }

  const char* shorter_key() const override { return "max_seq_len"; }

  TranslationSession& session() { return static_cast<TranslationSession&>(*session_); }
  const TokenizerPair& tokenizers() const { return model_.tokenizers; }

 protected:
  void begin() override {
    buckets_ = std::make_unique<Buckets>(choose_buckets(config_, lengths_));
    stream_ = std::make_unique<BatchStream>(*train_, *buckets_, static_cast<uint64_t>(config_.train.seed));
  }
  const PretrainedModel* pretrained() const override { return model_.pretrained.get(); }

 private:
  TranslationModel model_;
  std::unique_ptr<PairDataset> train_;
  std::unique_ptr<EvaluationSet> valid_;
  std::vector<std::pair<int, int>> lengths_;  // of all pairs that must fit a batch
  std::unique_ptr<Buckets> buckets_;
  std::unique_ptr<BatchStream> stream_;
};
}  // namespace

std::unique_ptr<SessionTask> make_translation_task(const Config& config) {
  return std::make_unique<TranslationTask>(config);
}

void export_translation_run(const std::string& folder, const std::string& out) {
  const OpenedTranslationModel opened = open_translation_model(folder);
  if (!opened.pretrained)
    fail_user("the Transformer of run '", folder,
        "' has no form that other programs load; architecture = \"t5\" or \"marian\" has");
  FlatWeights flat(*opened.model, opened.weights());
  if (const auto* marian = dynamic_cast<const Transformer*>(opened.model.get()))
    clear_start_embedding(marian->config, flat.layout, flat.parameters.data());
  SaveOptions options{.files = generation_files(folder)};
  bool whole = true;
  for (const auto& tokenizer : {opened.tokenizers.source, opened.tokenizers.target}) {
    const auto* pretrained = dynamic_cast<const PretrainedTokenizer*>(tokenizer.get());
    if (pretrained) options.files.merge(pretrained->files());  // the source's file wins
    whole = whole && pretrained != nullptr;
  }
  save_pretrained(*opened.pretrained, flat.layout, flat.parameters.data(), out, options);
  if (!whole)
    log_warning("the run's tokenizer has no form that other programs read: '" + out +
                "' holds configuration and weights alone");
}
}  // namespace linnet
