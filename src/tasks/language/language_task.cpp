#include "tasks/language/language_task.h"

#include <malloc.h>

#include "base/error.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "training/run/pretrained_run.h"
#include "tasks/inference.h"

namespace linnet {
namespace {

constexpr double kSampleTemperature = 0.8;

}  // namespace

LanguageTask::LanguageTask(const Config& config, const std::string& from, Capacity capacity) : config_(config) {
  {
    LanguageData data = load_language_data(config, from.empty() ? nullptr : load_text_coder(from));
    language_ = make_language_model(config, std::move(data.coder), from);
    train_.emplace(std::move(data.train)), valid_.emplace(std::move(data.valid));
  }
  log_info(std::to_string(train_->tokens.size()) + " tokens to train on, " + std::to_string(valid_->tokens.size()) +
           " to choose by, of " + std::to_string(language_.coder->vocab_size()) + " kinds");
  const bool packed = train_->packed || valid_->packed;
  session_.emplace(config, language_.model,
                   LanguageOptions{.packed = packed,
                                   .documents = train_->packed ? train_->documents : valid_->documents,
                                   .sample_length = config.train.sample_length,
                                   .verify_plans = capacity == Capacity::kMustSuffice});
  if (allocate_within(*session_, "; a smaller batch_size needs less (see `linnet plan`)", capacity)) {
    chunks_.emplace(train_->tokens, session_->chunks, static_cast<uint64_t>(config.train.seed), packed);
  }
  malloc_trim(0);  // what loading and planning freed should not count
  forecast_ = forecast_memory(resident_bytes(), session_->store);
}

const PretrainedModel* LanguageTask::starts_from() const {
  return language_.pretrained && !language_.pretrained->folder.empty() ? &*language_.pretrained : nullptr;
}

void LanguageTask::initialize() {
  trainer().initialize();
  if (const PretrainedModel* from = starts_from()) load_initial_weights(trainer(), *from, config_);
}

Evaluation LanguageTask::evaluate(SharedWork& ranks) {
  Evaluation result = session_->evaluate(*valid_, ranks);
  if (!session_->generator) return result;
  GenerateSettings settings;
  settings.max_tokens = config_.train.sample_length, settings.slide = true;
  settings.sampling.temperature = kSampleTemperature,
  settings.sampling.seed = static_cast<uint64_t>(config_.train.seed);
  settings.ends = language_.ends();
  settings.first_sample = evaluations_++;
  // Where no token begins a text, the sample goes on from the first one of the text that was evaluated.
  std::vector<std::vector<int32_t>> prompts{{language_.coder->start()}};
  if (prompts[0][0] < 0) valid_->tokens.read(0, 1, prompts[0].data());
  result.samples.push_back(ranks.text([&] {
    return language_.coder->decode(session_->generator->generate(prompts, settings, trainer().pool())[0].tokens);
  }));
  return result;
}

Evaluation evaluate_language_model(const OpenedLanguageModel& opened, const Config& config, const std::string& path,
                                   const std::string& split) {
  const TextCoder& coder = *opened.coder;
  const LanguageText text =
      path.empty() ? load_language_split(config, coder, split) : load_language_text(config, coder, path);
  if (text.tokens.size() < 2) fail_user("the text to evaluate has fewer than 2 tokens");
  LanguageSession session(config, opened.model,
                          {.training = false, .packed = text.packed, .documents = text.documents});
  take_model_weights(session, opened.folder, "", [&](const ParameterLayout& layout, const ParameterTarget& parameters) {
    opened.load_weights(layout, parameters);
  });
  return session.evaluate(text);
}

}  // namespace linnet
