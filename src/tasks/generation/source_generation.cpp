// Answers prompts with an encoder-decoder: T5, Marian, or a translation run.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>
#include "base/fail.h"
#include "base/log.h"
#include "data/text/pretrained_tokenizer.h"
#include "data/text/unicode/utf8.h"
#include "generation/generators.h"
#include "tasks/generation/text_model.h"
#include "tasks/translation/translation_model.h"
#include "training/run/pretrained_run.h"

namespace linnet {
namespace {
constexpr int64_t kSourceSlots = 8;  // texts at once, if there are more requests than samples
constexpr int64_t kSourceStep = 16;  // padded lengths are multiples
constexpr int64_t kAnyLength = 512;  // default tokens of a side in a resident model

// Depends on this source alone, as the padded length affects the bits of its text.
int64_t padded_source_length(int64_t tokens, int64_t most) {
  return std::min((tokens + kSourceStep - 1) / kSourceStep * kSourceStep, most);
}

std::vector<int32_t> encode_source(
    const OpenedTranslationModel& opened, const SentenceFrame& frame, const TextRequest& request) {
  if (!request.messages.empty())
    fail_user(request.where, ": a conversation is for models that go on from their prompt");
  if (const size_t at = invalid_utf8_at(request.prompt); at != std::string::npos)
    fail_user(request.where, ": byte ", at + 1, " is not valid UTF-8");
  std::vector<int32_t> ids = request.tokens;
  if (!request.has_tokens) opened.tokenizers.source->encode(request.prompt, ids);
  if (ids.empty()) fail_user(request.where, " is empty");
  if (!request.has_tokens) frame_sentence(ids, frame.source_begin, frame.source_end);
  const int64_t vocabulary = opened.tokenizers.source->vocab_size();
  for (const int32_t id : ids)
    if (id >= vocabulary) fail_user(request.where, ": there is no token ", id, "; the tokenizer has ", vocabulary);
  if (static_cast<int64_t>(ids.size()) > opened.model->max_length())
    fail_user(request.where, " has ", ids.size(), " tokens, and the model takes ", opened.model->max_length());
  return ids;
}

// If neither user nor author choose a method: the likeliest answer, not a random one.
GenerationChoice choose(
    const TextGenerationOptions& options, const OpenedTranslationModel& opened, GenerationConfig author, bool warn) {
  if (options.no_cache) fail_user("--no-cache is for models that go on from their prompt");
  if (options.grammar) fail_user("\"response_format\" is for models that go on from their prompt");
  const SpecialTokens& special = opened.tokenizers.special;
  author.sample = author.sample.value_or(false);
  // Marian's folders forbid only padding, which is never written anyway.
  std::erase_if(author.forbidden, [&](const auto& words) { return words == std::vector<int64_t>{special.pad}; });
  GenerationChoice choice = choose_generation(options, {opened.folder, author, {special.end}, 1, warn});
  choice.forced_end = author.forced_end.has_value() && !options.ignore_end;
  // Sampling needs no step for the last token, which is always the end.
  if (choice.forced_end && choice.beams == 1 && choice.max_tokens > 1) --choice.max_tokens;
  choice.max_tokens = std::min(choice.max_tokens, opened.model->max_length());
  return choice;
}

class TargetFlow : public TextFlow {
 public:
  explicit TargetFlow(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    if (const auto* pretrained = dynamic_cast<const PretrainedTokenizer*>(&tokenizer)) stream_.emplace(*pretrained);
  }
  std::string push(int32_t token) override {
    if (stream_) return stream_->push(token);
    ids_.push_back(token);
    const std::string text = tokenizer_.decode(ids_);
    // The project's own tokenizers may take back a blank at the end, but nothing before it.
    return text.size() > shown_ ? text.substr(std::exchange(shown_, text.size())) : "";
  }
  std::string finish() override { return stream_ ? stream_->finish() : ""; }

 private:
  const Tokenizer& tokenizer_;
  std::optional<TextStream> stream_;
  std::vector<int32_t> ids_;
  size_t shown_ = 0;
};

class SourceGeneration : public TextModel {
 public:
  SourceGeneration(const std::string& folder, const TextGenerationOptions& options)
      : TextModel(folder, options), opened_(open_translation_model(folder, adapters_)),
        author_(opened_.is_run ? run_generation_config(folder) : read_generation_config(folder)) {
    if (!options.draft.empty())
      fail_user("'", folder, "' answers a source; a draft model is for models that go on from a prompt");
    never_ = opened_.tokenizers.never_written();
  }

  std::string decode(const std::vector<int32_t>& tokens) const override {
    return opened_.tokenizers.target->decode(tokens);
  }

  std::string piece_of(int32_t token) const override {
    const auto* pretrained = dynamic_cast<const PretrainedTokenizer*>(opened_.tokenizers.target.get());
    return pretrained ? pretrained->decode(std::span(&token, 1), false)
                      : opened_.tokenizers.target->decode(std::span(&token, 1));
  }

  bool has_chat_template() const override { return false; }
  bool answers() const override { return true; }
  TextJob prepare_translation(const TextRequest& given) const override {
    TextRequest request = given;
    TextGenerationOptions& options = request.options;
    const bool limited = options.max_tokens.has_value();
    if (!options.beams) options.beams = opened_.config.train.beam;
    if (opened_.is_run) {
      if (!limited) options.max_tokens = opened_.model->max_length();
      if (!options.length_penalty) options.length_penalty = opened_.config.train.length_penalty;
    }
    TextJob job = prepare(request);
    if (opened_.is_run && !limited) {
      const SearchSettings usual;
      const double most = usual.length_ratio * static_cast<double>(job.prompt.size());
      job.choice.max_tokens = std::min(job.choice.max_tokens, static_cast<int64_t>(most) + usual.length_margin);
    }
    return job;
  }

 private:
  TextJob prepare_job(const TextRequest& request, bool warn) const override {
    TokenizerPair framed = opened_.tokenizers;
    if (!request.options.languages.empty())
      frame_sentences(
          framed, opened_.pretrained ? opened_.pretrained->config : ConfigFile(), request.options.languages);
    const SentenceFrame frame = framed.frame();
    TextJob job{.prompt = encode_source(opened_, frame, request),
        .choice = choose(request.options, opened_, author_, warn),
        .begin = frame.target_begin};
    job.flow = [this] { return std::make_unique<TargetFlow>(*opened_.tokenizers.target); };
    return job;
  }

  void plan_jobs(std::span<const TextJob> jobs, int64_t samples) override {
    SourceOptions plan{.max_length = 0, .begin = opened_.tokenizers.special.begin, .threads = pool_.size()};
    std::set<int64_t> lengths;
    for (const TextJob& job : jobs) {
      lengths.insert(padded_source_length(static_cast<int64_t>(job.prompt.size()), opened_.model->max_length()));
      plan.max_length = std::max(plan.max_length, job.choice.max_tokens);
      plan.beams = std::max(plan.beams, job.choice.beams);
    }
    plan.source_lengths.assign(lengths.begin(), lengths.end());
    plan.rows =
        texts_at_once(static_cast<int64_t>(jobs.size()), samples, std::max<int64_t>(1, kSourceSlots / plan.beams));
    load_model(plan);
  }

  // Plans all padded source lengths.
  void plan_any(const TextRoom& options) override {
    const int64_t most = opened_.model->max_length(), limit = options.max_length > 0 ? options.max_length : kAnyLength;
    if (options.max_length > most)
      log_warning(std::to_string(options.max_length) + " tokens of a text are asked for, and the model takes " +
                  std::to_string(most));
    SourceOptions plan{.rows = options.slots,
        .beams = std::max(options.beams, opened_.config.train.beam),
        .max_length = std::min(most, limit),
        .begin = opened_.tokenizers.special.begin,
        .threads = pool_.size()};
    for (int64_t tokens = 1; tokens <= plan.max_length; tokens = plan.source_lengths.back() + 1)
      plan.source_lengths.push_back(padded_source_length(tokens, most));
    load_model(plan);
  }

  void load_model(const SourceOptions& plan) { load(opened_.folder, *opened_.model, plan, opened_.weights()); }

  const OpenedTranslationModel opened_;
  const GenerationConfig author_;  // empty for runs
};
}  // namespace

std::unique_ptr<TextModel> open_source_model(const std::string& folder, const TextGenerationOptions& options) {
  return std::make_unique<SourceGeneration>(folder, options);
}
}  // namespace linnet
