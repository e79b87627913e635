#include "tasks/masked/masked_task.h"
#include "base/fail.h"
#include "base/log.h"
#include "data/metrics/text_scores.h"
#include "models/families/encoder_family.h"
#include "tasks/task_table.h"
#include "tasks/text_files.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
constexpr int64_t kLengthStep = 16;

std::unique_ptr<PretrainedTokenizer> find_tokenizer(const Config& config) {
  if (!config.data.tokenizer_dir.empty()) return load_pretrained_tokenizer(config.data.tokenizer_dir);
  if (!config.model.from.empty()) return load_pretrained_tokenizer(config.model.from);
  fail_user(
      "task = \"masked_language\" needs a tokenizer with a mask token, which is not given (--set "
      "data.tokenizer_dir=FILE, a vocab.txt or tokenizer.json, or model.from=FOLDER)");
}

void check_masked_vocabulary(MaskedModel& model) {
  const int64_t have = model.tokenizer->vocab_size(), takes = model.model().encoder.config.vocab_size;
  if (have > takes) fail_user("the tokenizer has ", have, " tokens, the model only ", takes);
  if (model.tokenizer->roles().mask == kNoToken) fail_user("the tokenizer has no mask token");
}

// Opens a run folder, or assets sent by another rank.
MaskedModel open_masked_run(const std::string& folder) {
  MaskedModel model;
  model.pretrained = open_run_model(folder), model.tokenizer = open_run_tokenizer(folder);
  check_masked_vocabulary(model);
  return model;
}

MaskedModel open_masked_model(const std::string& folder) {
  if (RunFolder(folder).has_config()) return open_masked_run(folder);
  MaskedModel model;
  model.pretrained = open_pretrained(folder, {.head = ModelHead::kTokens});
  if (!model.pretrained.fresh.empty())
    fail_user("'", folder, "' has no head that finds masked tokens ('", model.pretrained.fresh[0], "' is missing)");
  model.tokenizer = load_pretrained_tokenizer(folder);
  check_masked_vocabulary(model);
  return model;
}

// That of model.from, or a new one.
PretrainedModel first_masked_model(const Config& config, int64_t vocab_size, int64_t pad_token) {
  if (!config.model.from.empty())
    return open_pretrained(config.model.from, {.head = ModelHead::kTokens, .lora = lora_options(config)});
  return new_pretrained(describe_encoder(config, vocab_size, pad_token, ModelHead::kTokens));
}

int64_t rows_of(const Config& config, int64_t longest) {
  const int64_t rows = config.data.batch_size > 0 ? config.data.batch_size : config.data.batch_tokens / longest;
  if (rows < 1)
    fail_user("batch_tokens = ", config.data.batch_tokens, " does not hold one row of ", longest, " tokens");
  return rows;
}

// Batch rows of a configuration; shorter lengths only if texts have `several` documents.
MaskingOptions masking_options(
    const Config& config, const EncoderConfig& encoder, const TokenRoles& roles, int64_t vocab_size, bool several) {
  const int64_t longest = config.data.context > 0 ? config.data.context : encoder.max_seq_len;
  if (longest > encoder.max_seq_len)
    fail_user("context = ", longest, ", and the model takes ", encoder.max_seq_len,
        " tokens (--set context=", encoder.max_seq_len, ")");
  MaskingOptions masking{.mask = roles.mask, .vocab_size = vocab_size};
  for (const int64_t length : {longest / 4, longest / 2})
    if (several && length / kLengthStep > 0) masking.lengths.push_back(length / kLengthStep * kLengthStep);
  masking.lengths.push_back(longest);
  masking.lengths.erase(std::unique(masking.lengths.begin(), masking.lengths.end()), masking.lengths.end());
  masking.rows = rows_of(config, longest);
  masking.begin = roles.classify != kNoToken ? roles.classify : roles.begin;
  masking.end = roles.separate != kNoToken ? roles.separate : roles.end;
  if (roles.pad != kNoToken) masking.special.push_back(roles.pad);
  return masking;
}

class MaskedSession : public Session {
 public:
  MaskedSession(const Config& config, MaskedLanguageModel& masked_model, const MaskingOptions& masking_options,
      bool training, bool verify_plans = true)
      : Session(config, masked_model, training, verify_plans,
            [&](Trace& trace) {
              return masked_language_loss(masked_model, trace, 1, masking_options.lengths.front(),
                  masked_places(masking_options, masking_options.lengths.front()), false);
            }),
        masking(masking_options), model(masked_model) {
    const auto loss = [this, smoothing = config.train.label_smoothing](Trace& trace, int64_t length) {
      return masked_language_loss(
          model, trace, masking.rows, length, masking.rows * masked_places(masking, length), false, smoothing);
    };
    plan(masked_inputs(masking), losses_of(masking.lengths, loss));
  }

  // Loss, perplexity and accuracy at masked positions; each token is used once.
  TaskEvaluation evaluate(MaskedChunks& chunks, const SharedWork& ranks = SharedWork::alone()) {
    const std::vector<double> found =
        ranks.numbers(chunks.scoring_batches(), 3, [&](int64_t index, std::span<double> result) {
          const Batch& batch = chunks.scoring_batch(index);
          const LossTotal total = trainer->evaluate(batch);
          result[0] = total.sum, result[1] = static_cast<double>(total.tokens);
          const Executor& executor = trainer->plans().evaluate_executor(batch.shape_index);
          const int32_t* predictions = executor.output("predictions").as<const int32_t>();
          const std::span<const int32_t> targets = batch.ids("targets");
          for (size_t i = 0; i < targets.size(); ++i) result[2] += targets[i] >= 0 && predictions[i] == targets[i];
        });
    double nats = 0, right = 0;
    int64_t masked = 0;
    for (size_t i = 0; i < found.size(); i += 3)
      nats += found[i], masked += static_cast<int64_t>(found[i + 1]), right += found[i + 2];
    if (masked == 0) fail_user("the text to evaluate has no token that can be masked");
    const auto items = static_cast<double>(masked);
    return {nats / items, masked, {{"perplexity", perplexity(nats, masked)}, {"masked_accuracy", right / items}}, {}};
  }

  const MaskingOptions masking;
  MaskedLanguageModel& model;
};

class MaskedTask : public SessionTask {
 public:
  explicit MaskedTask(const Config& config) : SessionTask(config) {}

  void open(const std::string& from) override {
    model_ = make_masked_model(config_, from);
    const PretrainedTokenizer& tokenizer = *model_.tokenizer;
    data_.emplace(load_masked_data(config_, tokenizer));
    tokens_ = data_->train.tokens.size();
    log_info(tokens_, " tokens to train on, ", data_->valid.tokens.size(), " to choose by, of ", tokenizer.vocab_size(),
        " kinds");
    masking_ = masking_options(config_, model_.model().encoder.config, tokenizer.roles(), tokenizer.vocab_size(),
        data_->train.documents.size() > 1);
  }

  std::string assume(const DataAtHand& data) override {
    model_.pretrained = first_masked_model(config_, config_.data.vocab_size, 0);
    const EncoderConfig& encoder = model_.model().encoder.config;
    const TokenRoles roles{.pad = 0, .classify = 1, .separate = 2, .mask = 3};
    masking_ = masking_options(config_, encoder, roles, encoder.vocab_size, true);
    tokens_ = data.assumed_tokens(config_.data), assumed_bytes_ = 2 * static_cast<uint64_t>(tokens_);
    return data.why_not + "; assuming " + std::to_string(tokens_) +
           " tokens in documents of all lengths, and a vocabulary of " + std::to_string(encoder.vocab_size) + ".";
  }

  DataAtHand data_at_hand(bool exact) const override {
    DataAtHand data = text_at_hand(config_, exact);
    const bool tokenizer = !config_.data.tokenizer_dir.empty() || !config_.model.from.empty();
    if (data.read && !tokenizer) data.read = false, data.why_not = "No tokenizer was given";
    return data;
  }

  std::unique_ptr<Session> make_session(const Config& config, bool verify) override {
    MaskingOptions masking = masking_;
    masking.rows = rows_of(config, masking.lengths.back());
    return std::make_unique<MaskedSession>(config, model_.model(), masking, true, verify);
  }

  BatchSource& batches() override { return *chunks_; }
  TaskEvaluation evaluate(const SharedWork& ranks) override {
    return static_cast<MaskedSession&>(*session_).evaluate(*valid_chunks_, ranks);
  }

  void save_assets(const std::string& folder) const override {
    save_pretrained_assets(folder, model_.pretrained, *model_.tokenizer);
  }

  int64_t most() const override { return std::max<int64_t>(1, tokens_ / masking_.lengths.back()); }
  std::string batches_text(const Session& session) const override {
    const MaskingOptions& masking = static_cast<const MaskedSession&>(session).masking;
    const int64_t longest = masking.lengths.back();
    return text_of_parts(masking.rows, " x ", longest, " tokens, ", masked_places(masking, longest),
        " of a row masked, ", masking.lengths.size(), masking.lengths.size() == 1 ? " shape" : " shapes");
  }

 protected:
  void begin() override {
    chunks_.emplace(data_->train.tokens, data_->train.documents, masking_, static_cast<uint64_t>(config_.train.seed));
    valid_chunks_.emplace(data_->valid.tokens, data_->valid.documents, masking_, 0);
  }

  const PretrainedModel* pretrained() const override { return &model_.pretrained; }

 private:
  MaskedModel model_;
  std::optional<MaskedData> data_;
  int64_t tokens_ = 0;  // to train on
  MaskingOptions masking_;
  std::optional<MaskedChunks> chunks_, valid_chunks_;
};
}  // namespace

ConfigFile describe_encoder(const Config& config, int64_t vocab_size, int64_t pad_token, ModelHead head) {
  const ModelConfig& m = config.model;
  EncoderConfig bert{.vocab_size = vocab_size,
      .max_seq_len = m.max_seq_len,
      .width = m.d_model,
      .heads = m.num_heads,
      .layers = m.num_encoder_layers,
      .hidden = m.d_ff,
      .dropout = m.dropout,
      .activation = m.activation == "gelu" ? Activation::kGelu : Activation::kRelu,
      .pad_token = pad_token};
  // Without layers the first token's state is the same for all texts. ModernBERT's classifier takes the mean.
  bert.mean_pooled = bert.layers == 0 && head == ModelHead::kClasses;
  return encoder_config_file(bert.mean_pooled ? "modernbert" : "bert", bert, head);
}

MaskedModel make_masked_model(const Config& config, const std::string& from) {
  if (!from.empty()) return is_pretrained_folder(from) ? open_masked_model(from) : open_masked_run(from);
  MaskedModel model;
  model.tokenizer = find_tokenizer(config);
  model.pretrained = first_masked_model(config, model.tokenizer->vocab_size(), model.tokenizer->roles().pad);
  check_masked_vocabulary(model);
  return model;
}

std::unique_ptr<SessionTask> make_masked_task(const Config& config) { return std::make_unique<MaskedTask>(config); }

TaskEvaluation evaluate_masked_model(
    const std::string& folder, const Config& config, const std::string& path, const std::string& split) {
  MaskedModel model = open_masked_model(folder);
  const PretrainedTokenizer& tokenizer = *model.tokenizer;
  const std::string file = evaluated_text(config, path, split);
  const MaskedText text =
      file.empty() ? load_masked_data(config, tokenizer).valid : load_masked_text(config, tokenizer, file);
  const MaskingOptions masking = masking_options(
      config, model.model().encoder.config, tokenizer.roles(), tokenizer.vocab_size(), text.documents.size() > 1);
  MaskedChunks chunks(text.tokens, text.documents, masking, 0);
  MaskedSession session(config, model.model(), masking, false);
  take_weights(session, "", weights_of(folder, RunFolder(folder).has_config() ? nullptr : &model.pretrained));
  TaskEvaluation result = session.evaluate(chunks);
  const int64_t tokens = sum_of<int64_t>(text.documents, &TokenSpan::count);
  result.metrics.emplace_back("tokens", static_cast<double>(tokens));
  return result;
}
}  // namespace linnet
