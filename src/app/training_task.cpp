#include "app/training_task.h"

#include "app/classification_task.h"
#include "app/image_task.h"
#include "app/language_task.h"
#include "app/masked_task.h"
#include "app/translation_task.h"
#include "base/error.h"

namespace linnet {

double Evaluation::metric(const std::string& name) const {
  for (const auto& [key, value] : metrics)
    if (key == name) return value;
  fail_internal("this task has no metric " + name);
}

std::vector<DoneStep> TrainingTask::train_chunk(std::span<const float>, int64_t) {
  fail_internal("this task does one step after another");
}

std::unique_ptr<TrainingTask> make_training_task(const Config& config, const std::string& from) {
  if (config.data.task == "images") return std::make_unique<ImageTask>(config);
  if (config.data.task == "classification") return std::make_unique<ClassificationTask>(config, from);
  if (config.data.task == "language") return std::make_unique<LanguageTask>(config, from);
  if (config.data.task == "masked_language") return std::make_unique<MaskedTask>(config, from);
  return std::make_unique<TranslationTask>(config, from);
}

}  // namespace linnet
