// Trains a model to predict the next token of a text.
#include "base/fail.h"
#include "base/log.h"
#include "models/families/decoder_family.h"
#include "models/modules/text_decoder.h"
#include "tasks/inference.h"
#include "tasks/language/language_model.h"
#include "tasks/language/language_session.h"
#include "tasks/session_task.h"
#include "tasks/task_table.h"
#include "training/run/pretrained_run.h"

namespace linnet {
namespace {
constexpr double kSampleTemperature = 0.8;

class LanguageTask : public SessionTask {
 public:
  explicit LanguageTask(const Config& config) : SessionTask(config) {}

  void open(const std::string& from) override {
    {
      LanguageData data = load_language_data(config_, from.empty() ? nullptr : load_text_coder(from));
      language_ = make_language_model(config_, std::move(data.coder), from);
      train_.emplace(std::move(data.train)), valid_.emplace(std::move(data.valid));
    }
    tokens_ = train_->tokens.size();
    packed_ = train_->packed || valid_->packed;
    log_info(tokens_, " tokens to train on, ", valid_->tokens.size(), " to choose by, of ",
        language_.coder->vocab_size(), " kinds");
  }

  std::string assume(const DataAtHand& data) override {
    tokens_ = data.assumed_tokens(config_.data), assumed_bytes_ = 2 * static_cast<uint64_t>(tokens_);
    language_ = make_language_model(config_, make_number_coder(config_.data.vocab_size), "", /*to_plan=*/true);
    return data.why_not + "; assuming " + std::to_string(tokens_) + " tokens and a vocabulary of " +
           std::to_string(language_.model->vocab_size()) + ".";
  }

  DataAtHand data_at_hand(bool exact) const override { return text_at_hand(config_, exact); }
  std::unique_ptr<Session> make_session(const Config& config, bool verify) override {
    LanguageOptions options{.packed = packed_,
        .sample_length = config.train.sample_length,
        .verify_plans = verify,
        .teacher = teacher({}, language_.encoding(train_.has_value()))};
    if (train_) options.documents = train_->packed ? train_->documents : valid_->documents;
    auto session = std::make_unique<LanguageSession>(config, language_.model, options);
    context_ = session->chunks.length;
    return session;
  }

  BatchSource& batches() override { return *chunks_; }
  TaskEvaluation evaluate(const SharedWork& ranks) override {
    TaskEvaluation result = session().evaluate(*valid_, ranks);
    if (!session().generator) return result;
    GenerateSettings settings;
    settings.max_tokens = config_.train.sample_length, settings.slide = true;
    settings.sampling.temperature = kSampleTemperature,
    settings.sampling.seed = static_cast<uint64_t>(config_.train.seed);
    settings.ends = language_.ends();
    settings.first_sample = static_cast<uint64_t>(earlier_evaluations);
    // Without a begin token the sample continues the first token of the validation text.
    std::vector<std::vector<int32_t>> prompts{{language_.coder->start()}};
    if (prompts[0][0] < 0) valid_->tokens.read(0, 1, prompts[0].data());
    result.samples.push_back(ranks.text([&] {
      return language_.coder->decode(session().generator->generate(prompts, settings, trainer().pool())[0].tokens);
    }));
    return result;
  }

  void save_assets(const std::string& folder) const override { language_.save_assets(folder); }

  int64_t most() const override { return std::max<int64_t>(1, tokens_ / context_); }
  std::string batches_text(const Session& session) const override {
    const ChunkOptions& chunks = static_cast<const LanguageSession&>(session).chunks;
    return std::to_string(chunks.rows) + " x " + std::to_string(chunks.length) + " tokens";
  }

 protected:
  void begin() override {
    chunks_.emplace(train_->tokens, session().chunks, static_cast<uint64_t>(config_.train.seed), packed_);
  }

  const PretrainedModel* pretrained() const override { return language_.pretrained.get(); }

 private:
  LanguageSession& session() { return static_cast<LanguageSession&>(*session_); }

  LanguageModel language_;
  std::optional<LanguageText> train_, valid_;
  int64_t tokens_ = 0, context_ = 1;  // training tokens; tokens of a chunk
  bool packed_ = false;
  std::optional<TrainingChunks> chunks_;
};
}  // namespace

std::unique_ptr<SessionTask> make_language_task(const Config& config) { return std::make_unique<LanguageTask>(config); }

TaskEvaluation evaluate_language_model(
    const std::string& folder, const Config& config, const std::string& path, const std::string& split) {
  const OpenedLanguageModel opened = open_language_model(folder);
  if (opened.is_run && opened.config.data.task == "chat") return evaluate_chats(opened, config, path, split);
  if (opened.is_run && opened.config.data.task == "preferences")
    return evaluate_preferences(opened, config, path, split);
  const TextCoder& coder = *opened.coder;
  const LanguageText text = load_evaluated_text(config, coder, path, split);
  if (text.tokens.size() < 2) fail_user("the text to evaluate has fewer than 2 tokens");
  LanguageSession session(
      config, opened.model, {.training = false, .packed = text.packed, .documents = text.documents});
  take_model_weights(session, folder, "", opened.weights());
  return session.evaluate(text);
}

void export_language_model(const OpenedLanguageModel& opened, const std::string& out) {
  const PretrainedTokenizer* tokenizer = opened.coder->pretrained();
  if (!opened.is_run && !tokenizer) fail_user("'", opened.folder, "' holds no tokenizer of a kind that Linnet knows");
  const FlatWeights flat(*opened.model, opened.weights());
  SaveOptions options;
  if (tokenizer) options.files = tokenizer->files();
  if (opened.is_run) options.files.merge(generation_files(opened.folder));
  if (opened.pretrained) {
    save_pretrained(*opened.pretrained, flat.layout, flat.parameters.data(), out, options);
  } else {
    const DecoderConfig& own = static_cast<const TextDecoder&>(*opened.model).config;  // runs only have such models
    ConfigFile config = decoder_config_file(opened.model_type, own);
    // Other programs assume the ids of well-known models if a file names none.
    for (const auto& [key, token] :
        {std::pair{"bos_token_id", opened.coder->start()}, {"eos_token_id", opened.coder->separator()}})
      token < 0 ? config.set_null(key) : config.set(key, token);
    save_pretrained(new_pretrained(config), flat.layout, flat.parameters.data(), out, options);
  }
  if (options.files.empty())
    log_warning("no other program reads a tokenizer of single characters: only configuration and weights are written");
}
}  // namespace linnet
