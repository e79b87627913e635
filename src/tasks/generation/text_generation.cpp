// Continues prompts with a decoder-only model, or answers them with an encoder-decoder (T5, Marian, translation runs).
#include <set>
#include "base/fail.h"
#include "base/log.h"
#include "base/numbers.h"
#include "data/text/chat/chat_template.h"
#include "data/text/pretrained_tokenizer.h"
#include "data/text/unicode/utf8.h"
#include "engine/plan/store.h"
#include "generation/engine.h"
#include "models/families/static_scales.h"
#include "tasks/generation/text_model.h"
#include "tasks/language/language_model.h"
#include "tasks/translation/translation_model.h"
#include "training/run/memory_report.h"
#include "training/run/pretrained_run.h"

namespace linnet {
namespace {
constexpr int64_t kTextSlots = 8;  // texts at once, if there are more requests than samples
constexpr int64_t kUncachedStep = 64;

void tell_of_limit(const TextRoom& options, int64_t most) {
  if (options.max_length > most)
    log_warning(options.max_length, " tokens of a text are asked for, and the model takes ", most);
}

// The padded length of a prompt: at most an eighth more, so that many prompts need few plans. Depends on this prompt
// alone, as the bits of its logits depend on it.
int64_t padded_text_length(int64_t tokens, int64_t most) {
  int64_t step = 16;
  while (tokens > 16 * step) step *= 2;
  return std::min(most, round_up(tokens, step));
}

// User error unless every token has the same text in both.
void check_draft_vocabulary(const OpenedLanguageModel& draft, const OpenedLanguageModel& model) {
  const auto fail = [&](const std::string& why) {
    fail_user("'", draft.folder, "' cannot be the draft model of '", model.folder, "': ", why);
  };
  const int64_t size = model.model->vocab_size();
  if (draft.model->vocab_size() != size)
    fail("its vocabulary has " + std::to_string(draft.model->vocab_size()) + " tokens, not " + std::to_string(size));
  if (draft.coder->vocab_size() != model.coder->vocab_size()) fail("its tokenizer is another");
  for (int32_t token = 0; token < std::min(size, model.coder->vocab_size()); ++token)
    if (draft.coder->decode({token}) != model.coder->decode({token}))
      fail("its tokenizer is another, as token " + std::to_string(token) + " tells");
}

// Special tokens have no text in which a stop text could be found: they end the text.
void add_special_stops(const PretrainedTokenizer* tokenizer, const std::vector<std::string>& stops, TextJob& job) {
  for (size_t i = 0; tokenizer && i < stops.size(); ++i)
    if (const TokenId id = tokenizer->id_of(stops[i]); id != kNoToken && tokenizer->is_special(id))
      job.choice.ends.push_back(id);
}

struct Draft {
  Draft(const std::string& folder, const WeightQuantization& quantization)
      : opened(open_language_model(folder)), layout(*opened.model, std::span<const ParameterGroup>(), quantization),
        shared(declare_model(store, layout)) {}

  const OpenedLanguageModel opened;
  const ParameterLayout layout;
  Store store;
  const SharedRegions shared;
};

class TextGeneration : public TextModel {
 public:
  TextGeneration(const std::string& folder, const TextGenerationOptions& options)
      : TextModel(folder, options), opened_(open_language_model(folder, adapters_)),
        author_(opened_.is_run ? run_generation_config(folder) : read_generation_config(folder)) {
    slides_ = true;
    const PretrainedTokenizer* tokenizer = opened_.coder->pretrained();
    try {
      if (!tokenizer) fail_user("'", folder, "' has no tokenizer with a chat template");
      template_.emplace(*tokenizer, folder);
    } catch (const Error& error) {
      template_error_ = error.what();  // reported when a conversation is requested
    }
  }

  std::string piece_of(int32_t token) const override {
    const PretrainedTokenizer* tokenizer = opened_.coder->pretrained();
    return tokenizer ? tokenizer->decode(std::span(&token, 1), false) : opened_.coder->decode({token});
  }

  bool has_chat_template() const override { return template_.has_value(); }
  bool answers() const override { return false; }

  void plan(std::span<const TextJob> jobs, int64_t samples) override {
    CausalOptions plan{.cache = !options_.no_cache, .threads = pool_.size()};
    const int64_t most = opened_.model->max_length();
    std::set<int64_t> lengths;
    for (const TextJob& job : jobs) {
      const auto prompt = static_cast<int64_t>(job.prompt.size()), padded = padded_text_length(prompt, most);
      const int64_t whole = prompt + job.choice.max_tokens;
      lengths.insert(padded);
      if (whole > most) lengths.insert(padded_text_length((most + 1) / 2, most));  // continues from its last half
      plan.max_length = std::max({plan.max_length, padded, std::min(most, whole)});
      plan.beams = std::max(plan.beams, job.choice.beams);
    }
    if (options_.no_cache)
      for (int64_t length = *lengths.begin(); length < plan.max_length; length += kUncachedStep)
        lengths.insert(std::min(length + kUncachedStep, plan.max_length));
    plan.prompt_lengths.assign(lengths.begin(), lengths.end());
    const int64_t slots =
        std::max(samples * plan.beams, texts_at_once(static_cast<int64_t>(jobs.size()), samples, kTextSlots));
    plan.rows = (slots + plan.beams - 1) / plan.beams;
    load_model(plan, jobs.size() * static_cast<size_t>(samples) > 1 && !options_.no_cache);
  }

 private:
  TextJob prepare_job(const TextRequest& request, bool warn) const override {
    TextJob job{.prompt = encode_prompt(request)};
    job.choice = choose_generation(
        request.options, {opened_.folder, author_, opened_.ends(), static_cast<int64_t>(job.prompt.size()), warn});
    add_special_stops(opened_.coder->pretrained(), request.options.stop, job);
    // An answer is a text of its own; a continuation is decoded with its prompt.
    const std::vector<int32_t> context = request.messages.empty() ? job.prompt : std::vector<int32_t>();
    job.flow = [this, context] { return opened_.coder->flow(context); };
    job.choice.default_temperature = job.choice.beams == 1 && job.choice.sampling.temperature != 0 &&
                                     !request.options.temperature && !author_.temperature;
    if (!request.options.grammar) return job;
    job.grammar = request.options.grammar, job.texts = token_texts();
    if (!TokenFilter(job.grammar, job.texts, {}).allowed())
      fail_user(request.where, ": the model's tokens cannot spell JSON");
    return job;
  }

  // Plans all padded prompt lengths.
  void plan_any(const TextRoom& options) override {
    const int64_t most = opened_.model->max_length(),
                  limit = options.max_length > 0 ? options.max_length : kResidentLength;
    tell_of_limit(options, most);
    CausalOptions plan{.rows = options.slots,
        .beams = std::max(options.beams, author_.beams.value_or(1)),
        .threads = pool_.size(),
        .plan_on_demand = true};
    plan.max_length = std::min(most, limit);
    for (int64_t tokens = 1; tokens <= plan.max_length;) {
      const int64_t padded = padded_text_length(tokens, most);
      if (padded > plan.max_length) break;
      plan.prompt_lengths.push_back(padded);
      tokens = padded + 1;
    }
    if (plan.prompt_lengths.empty())
      fail_user("a text of ", limit, " tokens is too short to be written; the least is 16");
    load_model(plan, true);
  }

  std::vector<int32_t> encode_prompt(const TextRequest& request) const {
    const TextCoder& coder = *opened_.coder;
    std::vector<int32_t> ids = request.tokens;
    if (!request.messages.empty()) {
      encode_chat(request, ids);
    } else if (!request.has_tokens) {
      if (const size_t at = invalid_utf8_at(request.prompt); at != std::string::npos)
        fail_user(request.where, ": byte ", at + 1, " is not valid UTF-8");
      coder.encode_whole(request.prompt, ids);
    }
    for (const int32_t id : ids)
      if (id >= opened_.model->vocab_size())
        fail_user(request.where, ": there is no token ", id, "; the model has ", opened_.model->vocab_size());
    if (const auto size = static_cast<int64_t>(ids.size()); size >= opened_.model->max_length())
      fail_user(request.where, " has ", size, " tokens, and the model takes ", opened_.model->max_length(),
          ", the text it writes included");
    if (!ids.empty()) return ids;
    if (coder.start() < 0) fail_user(request.where, " is empty, and the model has no token that begins a text");
    return {coder.start()};
  }

  // What each token adds within a text; nothing for special tokens.
  std::shared_ptr<const TokenTexts> token_texts() const {
    std::call_once(texts_made_, [this] {
      const TextCoder& coder = *opened_.coder;
      std::vector<int32_t> ids;
      coder.encode("a", ids);
      const size_t before = coder.decode(ids).size();
      std::vector<std::string> texts(opened_.model->vocab_size());
      for (int32_t token = 0; token < std::min(coder.vocab_size(), opened_.model->vocab_size()); ++token) {
        ids.push_back(token);
        std::string& text = texts[token] = coder.decode(ids);
        text.erase(0, std::min(text.size(), before));
        // SentencePiece's "<0xE2>", a part of a character
        if (text == "\xEF\xBF\xBD" && coder.pretrained())
          if (const int byte = fallback_byte(coder.pretrained()->piece(token)); byte >= 0)
            text = static_cast<char>(byte);
        ids.pop_back();
      }
      texts_ = std::make_shared<const TokenTexts>(std::move(texts));
    });
    return texts_;
  }

  void encode_chat(const TextRequest& request, std::vector<int32_t>& ids) const {
    if (!template_) fail_user(template_error_);
    if (!request.tools.empty() && !template_->knows_tools())
      fail_user("the model's chat template ignores \"tools\": the model would not see them");
    opened_.coder->pretrained()->encode_with_special(template_->render(request.messages, true, request.tools), ids);
  }

  // `many`: later requests may share prefixes.
  void load_model(CausalOptions plan, bool many) {
    if (are_chosen(adapters_)) plan.adapters = std::ssize(adapters_);
    if (options_.prefix_megabytes) plan.prefix_bytes = *options_.prefix_megabytes << 20;
    else if (many) plan.prefix_bytes = kPrefixAsCache;
    if (options_.draft.empty()) return load(opened_.folder, *opened_.model, plan, opened_.weights());
    if (options_.device != "cpu") fail_user("a draft model is for the CPU");
    draft_ =
        std::make_unique<Draft>(options_.draft, folder_quantization(options_.draft, options_.quantize, options_.keep));
    check_draft_vocabulary(draft_->opened, opened_);
    load(opened_.folder, *opened_.model, plan, opened_.weights(),
        std::optional(
            DraftModel{*draft_->opened.model, draft_->layout, draft_->store, draft_->shared, options_.draft_tokens}));
  }

  // Allocated before the model, so that the memory left for it is known.
  void allocate_draft() override {
    if (!draft_) return;
    check_fits(draft_->store, " for the draft model");
    draft_->store.allocate();
    draft_->layout.initialize_constants(draft_->store.as<float>(state::kConstants), pool_);
    fill(options_.draft, draft_->layout, draft_->store, draft_->opened.weights());
  }

  const OpenedLanguageModel opened_;
  const GenerationConfig author_;  // empty for runs
  std::optional<ChatTemplate> template_;
  std::string template_error_;  // why there is no template
  std::unique_ptr<Draft> draft_;
  mutable std::once_flag texts_made_;
  mutable std::shared_ptr<const TokenTexts> texts_;  // made for the first request with a grammar
};

constexpr int64_t kSourceStep = 16;  // padded lengths are multiples
constexpr int64_t kAnyLength = 512;  // default tokens of a side in a resident model

// Depends on this source alone, as the padded length affects the bits of its text.
int64_t padded_source_length(int64_t tokens, int64_t most) { return std::min(round_up(tokens, kSourceStep), most); }

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

// Of the project's own tokenizers, which may take back a blank at the end, but nothing before it.
class TargetFlow : public TextFlow {
 public:
  explicit TargetFlow(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string push(int32_t token) override {
    ids_.push_back(token);
    const std::string text = tokenizer_.decode(ids_);
    return text.size() > shown_ ? text.substr(std::exchange(shown_, text.size())) : "";
  }

 private:
  const Tokenizer& tokenizer_;
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

  std::string piece_of(int32_t token) const override {
    return pretrained_target_ ? pretrained_target_->decode(std::span(&token, 1), false)
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

  void plan(std::span<const TextJob> jobs, int64_t samples) override {
    SourceOptions plan{.max_length = 0, .begin = opened_.tokenizers.special.begin, .threads = pool_.size()};
    std::set<int64_t> lengths;
    for (const TextJob& job : jobs) {
      lengths.insert(padded_source_length(static_cast<int64_t>(job.prompt.size()), opened_.model->max_length()));
      plan.max_length = std::max(plan.max_length, job.choice.max_tokens);
      plan.beams = std::max(plan.beams, job.choice.beams);
    }
    plan.source_lengths.assign(lengths.begin(), lengths.end());
    plan.rows =
        texts_at_once(static_cast<int64_t>(jobs.size()), samples, std::max<int64_t>(1, kTextSlots / plan.beams));
    load_model(plan);
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
    add_special_stops(pretrained_target_, request.options.stop, job);
    if (pretrained_target_) job.flow = [this] { return flow_of(*pretrained_target_); };
    else job.flow = [this] { return std::make_unique<TargetFlow>(*opened_.tokenizers.target); };
    return job;
  }

  // Plans all padded source lengths.
  void plan_any(const TextRoom& options) override {
    const int64_t most = opened_.model->max_length(), limit = options.max_length > 0 ? options.max_length : kAnyLength;
    tell_of_limit(options, most);
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
  const PretrainedTokenizer* const pretrained_target_ =  // null: one of the project's own
      dynamic_cast<const PretrainedTokenizer*>(opened_.tokenizers.target.get());
  const GenerationConfig author_;  // empty for runs
};
}  // namespace

std::unique_ptr<TextModel> open_text_model(const std::string& folder, const TextGenerationOptions& options) {
  if (is_translation_folder(folder) || is_run_of(folder, TaskKind::kTranslation))
    return std::make_unique<SourceGeneration>(folder, options);
  return std::make_unique<TextGeneration>(folder, options);
}
}  // namespace linnet
