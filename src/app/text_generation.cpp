#include "app/text_generation.h"

#include <algorithm>
#include <chrono>

#include "app/memory_report.h"
#include "base/error.h"
#include "exec/backend.h"
#include "nn/model_store.h"
#include "text/utf8.h"

namespace linnet {
namespace {

constexpr int64_t kPromptStep = 16, kUncachedStep = 64;  // what padded lengths are multiples of

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

std::vector<int32_t> encode_prompt(const TextCoder& coder, const std::string& prompt) {
  if (const size_t at = invalid_utf8_at(prompt); at != std::string::npos)
    fail_user("the prompt: byte " + std::to_string(at + 1) + " is not valid UTF-8");
  std::vector<int32_t> ids;
  coder.encode_whole(prompt, ids);
  if (!ids.empty()) return ids;
  if (coder.start() < 0) fail_user("the prompt is empty, and the model has no token that begins a text");
  return {coder.start()};
}

std::string continuation_text(const TextCoder& coder, std::span<const int32_t> prompt,
                              std::span<const int32_t> tokens) {
  const std::unique_ptr<TextFlow> flow = coder.flow(prompt);
  std::string text;
  for (const int32_t token : tokens) text += flow->push(token);
  return text + flow->finish();
}

CausalOptions plan_for(const CausalModel& model, int64_t prompt, const TextGenerationOptions& options,
                       const GenerationChoice& choice, int threads) {
  CausalOptions plan{.rows = options.samples, .beams = choice.beams, .cache = !options.no_cache, .threads = threads};
  plan.max_length = std::min(model.max_length(), prompt + choice.max_tokens);
  if (prompt >= model.max_length())
    fail_user("the prompt has " + std::to_string(prompt) + " tokens, and the model takes " +
              std::to_string(model.max_length()) + ", the text it writes included");
  const bool slides = prompt + choice.max_tokens > model.max_length();
  const int64_t longest = options.no_cache ? plan.max_length
                          : slides         ? std::max(prompt, plan.max_length / 2 + 1)
                                           : prompt;
  const int64_t step = options.no_cache ? kUncachedStep : kPromptStep;
  for (int64_t length = round_up(options.no_cache ? prompt : longest, step);; length += step) {
    plan.prompt_lengths.push_back(std::min(length, plan.max_length));
    if (plan.prompt_lengths.back() >= longest) break;
  }
  return plan;
}

}  // namespace

TextGeneration::TextGeneration(const std::string& folder, const std::string& prompt,
                               const TextGenerationOptions& options)
    : opened_(open_language_model(folder)),
      options_(options),
      prompt_(encode_prompt(*opened_.coder, prompt)),
      choice_(choose_generation(options, opened_, static_cast<int64_t>(prompt_.size()))),
      layout_(*opened_.model),
      store_(open_backend(options.device)),
      pool_(options.threads > 0 ? options.threads : available_threads()) {
  const SharedRegions shared = declare_model(store_, layout_);
  generator_ = std::make_unique<CausalGenerator>(
      *opened_.model, layout_, store_, shared,
      plan_for(*opened_.model, static_cast<int64_t>(prompt_.size()), options, choice_, pool_.size()));
  check_fits(store_, "; fewer samples, beams or tokens need less");
  store_.allocate();
  generator_->bind();
  layout_.initialize_constants(store_.as<float>("constants"), pool_);
  opened_.load_weights(layout_, store_.as<float>("parameters"));
  store_.push("constants");
  store_.push("parameters");
}

std::vector<std::string> TextGeneration::run(const std::function<bool(const std::string& piece)>& hear) {
  const auto began = std::chrono::steady_clock::now();
  const GenerateSettings settings{.max_tokens = choice_.max_tokens,
                                  .sampling = choice_.sampling,
                                  .length_penalty = choice_.length_penalty,
                                  .early_stopping = choice_.early_stopping,
                                  .ends = choice_.ends,
                                  .slide = choice_.beams == 1};
  const std::unique_ptr<TextFlow> flow = opened_.coder->flow(prompt_);
  const std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(options_.samples), prompt_);
  const auto results = generator_->generate(prompts, settings, pool_, [&](int64_t row, int32_t token) {
    const std::string piece = row == 0 ? flow->push(token) : "";
    return hear(piece);
  });
  if (const std::string rest = flow->finish(); !rest.empty()) hear(rest);
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::vector<std::string> texts;
  tokens_ = 0;
  for (const Continuation& result : results) {
    texts.push_back(continuation_text(*opened_.coder, prompt_, result.tokens));
    tokens_ += static_cast<int64_t>(result.tokens.size());
  }
  if (choice_.beams > 1) hear(texts[0]);  // a search knows its text only at the end
  return texts;
}

}  // namespace linnet
