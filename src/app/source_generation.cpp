#include "app/source_generation.h"

#include <algorithm>

#include "app/memory_report.h"
#include "app/run_folder.h"
#include "base/error.h"
#include "exec/backend.h"
#include "nn/model_store.h"
#include "text/pretrained_tokenizer.h"
#include "text/utf8.h"

namespace linnet {
namespace {

constexpr int64_t kSourceStep = 16;  // what the padded length is a multiple of

// As the model was trained: the text and the end token.
std::vector<int32_t> encode_source(const OpenedTranslationModel& opened, const std::string& prompt) {
  if (const size_t at = invalid_utf8_at(prompt); at != std::string::npos)
    fail_user("the prompt: byte " + std::to_string(at + 1) + " is not valid UTF-8");
  std::vector<int32_t> ids;
  opened.tokenizers.source->encode(prompt, ids);
  if (ids.empty()) fail_user("the prompt is empty");
  ids.push_back(opened.tokenizers.special.end);
  if (static_cast<int64_t>(ids.size()) > opened.model->max_length())
    fail_user("the prompt has " + std::to_string(ids.size()) + " tokens, and the model takes " +
              std::to_string(opened.model->max_length()));
  return ids;
}

// Nobody said how: the likeliest answer rather than a draw.
GenerationChoice choose(const TextGenerationOptions& options, const OpenedTranslationModel& opened) {
  if (options.no_cache) fail_user("--no-cache is for models that go on from their prompt");
  const SpecialTokens& special = opened.tokenizers.special;
  GenerationConfig makers = opened.is_run ? GenerationConfig{} : read_generation_config(opened.folder);
  makers.sample = makers.sample.value_or(false);
  // Padding is never written, which is all that Marian's folders forbid.
  std::erase_if(makers.forbidden, [&](const auto& words) { return words == std::vector<int64_t>{special.pad}; });
  GenerationChoice choice = choose_generation(options, {opened.folder, makers, {special.end}, 1});
  choice.forced_end = makers.forced_end.has_value() && !options.ignore_end;
  // What is drawn needs no step for its last token, which is the end, whatever was likely.
  if (choice.forced_end && choice.beams == 1 && choice.max_tokens > 1) --choice.max_tokens;
  choice.max_tokens = std::min(choice.max_tokens, opened.model->max_length());
  return choice;
}

GenerateOptions plan_for(const OpenedTranslationModel& opened, const TextGenerationOptions& options,
                         const GenerationChoice& choice, int64_t source, int threads) {
  GenerateOptions plan;
  plan.sentences = options.samples, plan.beams = choice.beams;
  plan.max_length = choice.max_tokens;
  plan.length_ratio = 0, plan.length_margin = choice.max_tokens;
  plan.source_lengths = {std::min((source + kSourceStep - 1) / kSourceStep * kSourceStep, opened.model->max_length())};
  plan.length_penalty = choice.length_penalty, plan.early_stopping = choice.early_stopping;
  plan.forced_end = choice.forced_end;
  plan.special = opened.tokenizers.special;
  if (options.ignore_end) plan.special.end = -1;
  for (const int32_t end : choice.ends)
    if (end != plan.special.end) plan.other_ends.push_back(end);
  plan.threads = threads;
  return plan;
}

// The text of a target's tokens as they come.
class TargetFlow {
 public:
  explicit TargetFlow(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    if (const auto* pretrained = dynamic_cast<const PretrainedTokenizer*>(&tokenizer)) stream_.emplace(*pretrained);
  }
  std::string push(int32_t token) {
    if (stream_) return stream_->push(token);
    ids_.push_back(token);
    const std::string text = tokenizer_.decode(ids_);
    // A tokenizer of ours may take back a blank at the end, but nothing before it.
    return text.size() > shown_ ? text.substr(std::exchange(shown_, text.size())) : "";
  }
  std::string finish() { return stream_ ? stream_->finish() : ""; }

 private:
  const Tokenizer& tokenizer_;
  std::optional<TextStream> stream_;
  std::vector<int32_t> ids_;
  size_t shown_ = 0;
};

}  // namespace

SourceGeneration::SourceGeneration(const std::string& folder, const std::string& prompt,
                                   const TextGenerationOptions& options)
    : opened_(open_translation_model(folder)),
      options_(options),
      source_(encode_source(opened_, prompt)),
      choice_(choose(options, opened_)),
      layout_(*opened_.model),
      store_(open_backend(options.device)),
      pool_(options.threads > 0 ? options.threads : available_threads()) {
  const SharedRegions shared = declare_model(store_, layout_);
  generator_ = std::make_unique<Generator>(
      *opened_.model, layout_, store_, shared,
      plan_for(opened_, options, choice_, static_cast<int64_t>(source_.size()), pool_.size()));
  check_fits(store_, "; fewer samples, beams or tokens need less");
  store_.allocate();
  generator_->bind();
  layout_.initialize_constants(store_.as<float>("constants"), pool_);
  opened_.load_weights(layout_, store_.as<float>("parameters"));
  store_.push("constants");
  store_.push("parameters");
}

std::vector<std::string> SourceGeneration::run(const std::function<bool(const std::string& piece)>& hear) {
  const Tokenizer& target = *opened_.tokenizers.target;
  const std::vector<std::vector<int32_t>> sources(static_cast<size_t>(options_.samples), source_);
  std::vector<std::string> texts;
  if (choice_.beams > 1) {
    generator_->set_stop([&] { return !hear(""); });
    const auto found = generator_->generate(sources, 1, pool_);
    texts.push_back(found[0].empty() ? "" : target.decode(found[0][0].ids));
    hear(texts[0]);  // a search knows its text only at the end
    return texts;
  }
  const GenerateSettings settings{.max_tokens = choice_.max_tokens, .sampling = choice_.sampling, .ends = choice_.ends};
  TargetFlow flow(target);
  const auto results = generator_->sample(
      sources, settings, pool_, [&](int64_t row, int32_t token) { return hear(row == 0 ? flow.push(token) : ""); });
  if (const std::string rest = flow.finish(); !rest.empty()) hear(rest);
  for (const Continuation& result : results) texts.push_back(target.decode(result.tokens));
  return texts;
}

std::unique_ptr<TextWriter> open_text_writer(const std::string& folder, const std::string& prompt,
                                             const TextGenerationOptions& options) {
  const RunFolder run(folder);
  const std::string task = run.has_config() ? run.load_config().data.task : "";
  if (is_translation_folder(folder) || task == "text" || task == "dates" || task == "random")
    return std::make_unique<SourceGeneration>(folder, prompt, options);
  return std::make_unique<TextGeneration>(folder, prompt, options);
}

}  // namespace linnet
