#include "app/language_task.h"

#include <malloc.h>

#include "app/run_folder.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "train/checkpoint.h"

namespace linnet {
namespace {

constexpr int64_t kDropEvery = 256;  // batches between which pages of a mapped file stay

}  // namespace

LanguageTask::LanguageTask(const Config& config, std::unique_ptr<TextCoder> coder) : config_(config) {
  {
    LanguageData data = load_language_data(config, std::move(coder));
    coder_ = std::move(data.coder);
    train_.emplace(std::move(data.train)), valid_.emplace(std::move(data.valid));
  }
  log_info(std::to_string(train_->tokens.size()) + " tokens to train on, " + std::to_string(valid_->tokens.size()) +
           " to choose by, of " + std::to_string(coder_->vocab_size()) + " kinds");
  const bool packed = train_->packed || valid_->packed;
  session_.emplace(config, make_causal_model(config, coder_->vocab_size()),
                   LanguageOptions{.packed = packed, .separator = packed ? coder_->separator() : -1});
  check_fits(session_->store, "; a smaller batch_size needs less (see `linnet plan`)");
  session_->allocate();
  windows_.emplace(train_->tokens, session_->windows, static_cast<uint64_t>(config.train.seed));
  malloc_trim(0);  // what loading and planning freed should not count
  forecast_ = forecast_memory(resident_bytes(), session_->store);
}

LoadedBatch LanguageTask::next_batch() {
  if (++batches_ % kDropEvery == 0) train_->tokens.drop_pages();
  const TrainingWindows::Place place = windows_->next(session_->batch());
  return {0, place.epoch, place.index, place.last_of_epoch};
}

Evaluation LanguageTask::evaluate() { return session_->evaluate(*valid_); }

Evaluation evaluate_language_run(const std::string& folder, const Config& config, const std::string& path,
                                 const std::string& split) {
  const std::unique_ptr<TextCoder> coder = load_text_coder(config, folder);
  const LanguageText text =
      path.empty() ? load_language_split(config, *coder, split) : load_language_text(config, *coder, path);
  if (text.tokens.size() < 2) fail_user("the text to evaluate has fewer than 2 tokens");
  LanguageSession session(
      config, make_causal_model(config, coder->vocab_size()),
      {.training = false, .packed = text.packed, .separator = text.packed ? coder->separator() : -1});
  check_fits(session.store, "");
  session.allocate();
  session.store.touch();
  session.trainer->initialize();
  load_model(RunFolder(folder).model_path(), session.layout, session.trainer->state("parameters"));
  return session.evaluate(text);
}

}  // namespace linnet
