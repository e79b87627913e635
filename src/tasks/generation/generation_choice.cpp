#include "tasks/generation/generation_choice.h"
#include <algorithm>
#include "base/error.h"
#include "base/log.h"

namespace linnet {
namespace {
constexpr int64_t kUsualTopK = 50;  // transformers' default for sampling

template <class T> T first_given(const std::optional<T>& asked, const std::optional<T>& made, T standard) {
  return asked ? *asked : made.value_or(standard);
}

bool samples(const TextGenerationOptions& options) {
  return options.temperature || options.top_k || options.top_p || options.min_p || options.samples > 1;
}

bool changes_logits(const TextGenerationOptions& options) {
  return options.repetition_penalty || options.frequency_penalty || options.presence_penalty ||
         !options.logit_bias.empty() || options.grammar;
}

// The author's number of beams applies if the user neither samples nor compares.
int64_t choose_beams(const TextGenerationOptions& options, const GenerationConfig& author) {
  if (options.beams) return *options.beams;
  const bool own_way = samples(options) || changes_logits(options) || options.no_cache || author.sample.value_or(false);
  return own_way ? 1 : author.beams.value_or(1);
}

SamplingOptions choose_sampling(const TextGenerationOptions& options, const GenerationConfig& author) {
  const bool greedy = author.sample && !*author.sample && !samples(options);
  const int64_t top_k = author.sample.value_or(false) ? kUsualTopK : 0;
  SamplingOptions sampling;
  sampling.repetition_penalty = first_given(options.repetition_penalty, author.repetition_penalty, 1.0);
  sampling.temperature = greedy ? 0 : first_given(options.temperature, author.temperature, 1.0);
  sampling.top_k = first_given(options.top_k, author.top_k, top_k);
  sampling.top_p = first_given(options.top_p, author.top_p, 1.0);
  sampling.min_p = first_given(options.min_p, author.min_p, 0.0);
  sampling.frequency_penalty = options.frequency_penalty.value_or(0);
  sampling.presence_penalty = options.presence_penalty.value_or(0);
  sampling.bias = options.logit_bias;
  sampling.seed = options.seed;
  return sampling;
}

int64_t choose_length(const TextGenerationOptions& options, const GenerationConfig& author, int64_t prompt_tokens) {
  if (options.max_tokens) return *options.max_tokens;
  if (author.max_new_tokens) return *author.max_new_tokens;
  return author.max_length ? std::max<int64_t>(1, *author.max_length - prompt_tokens) : GenerationChoice{}.max_tokens;
}

void check_search(const TextGenerationOptions& options) {
  if (options.samples > 1) fail_user("a search finds one text: give either --beam or --samples");
  if (options.no_cache) fail_user("a search needs the cache: give either --beam or --no-cache");
  if (samples(options) || changes_logits(options))
    fail_user(
        "a search takes the likeliest text as it is: give either --beam or --temperature, --top-k, --top-p, --min-p, "
        "penalties, biases and formats");
}

EarlyStopping early_stopping(const std::string& name) {
  if (name == "true") return EarlyStopping::kFull;
  return name == "never" ? EarlyStopping::kNever : EarlyStopping::kLikely;
}

void warn_of(const std::string& what, const std::string& folder) {
  log_warning("'" + folder + "/generation_config.json': " + what + " is not supported and left out");
}
}  // namespace

GenerationChoice choose_generation(const TextGenerationOptions& options, const GenerationBasis& basis) {
  const GenerationConfig& author = basis.author;
  GenerationChoice choice;
  choice.beams = choose_beams(options, author);
  if (options.beams.value_or(1) > 1) check_search(options);
  choice.max_tokens = choose_length(options, author, basis.prompt_tokens);
  choice.sampling = choose_sampling(options, author);
  choice.length_penalty = first_given(options.length_penalty, author.length_penalty, 1.0);
  choice.early_stopping = early_stopping(author.early_stopping);
  const int64_t least = std::max<int64_t>(0, author.min_length.value_or(0) - basis.prompt_tokens);
  choice.rules = {std::max(least, author.min_new_tokens.value_or(0)), author.no_repeat_ngram.value_or(0)};
  if (!options.ignore_end) {
    choice.ends = basis.ends;
    for (const int64_t end : author.ends)
      if (std::ranges::find(choice.ends, end) == choice.ends.end()) choice.ends.push_back(static_cast<int32_t>(end));
  }
  if (!basis.warn) return choice;
  for (const std::string& key : author.unsupported) warn_of("\"" + key + "\"", basis.folder);
  if (!author.forbidden.empty()) warn_of("\"bad_words_ids\"", basis.folder);
  if (!options.beams && author.sample.value_or(false) && author.beams.value_or(1) > 1)
    warn_of("\"num_beams\" of a search that samples", basis.folder);
  if (choice.beams > 1 && author.repetition_penalty.value_or(1) != 1)
    warn_of("\"repetition_penalty\" of a search", basis.folder);
  return choice;
}
}  // namespace linnet
