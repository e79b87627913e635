#include "app/training_task.h"

#include "app/run_folder.h"
#include "app/task_table.h"
#include "base/error.h"
#include "base/files.h"
#include "pretrained/pretrained.h"

namespace linnet {

double Evaluation::metric(const std::string& name) const {
  for (const auto& [key, value] : metrics)
    if (key == name) return value;
  fail_internal("this task has no metric " + name);
}

namespace {

// Said before anything else is read: what `model.from` names is a model folder.
void check_model_folder(const std::string& folder) {
  const std::string named = "model.from = \"" + folder + "\": ";
  if (!file_exists(folder)) fail_user(named + "there is no such folder (--set model.from=FOLDER)");
  if (RunFolder(folder).has_config())
    fail_user(named + "this is a run folder; --init starts from one, and `linnet export` makes a model folder of it");
  if (!is_pretrained_folder(folder))
    fail_user(named + "not a model folder, which has a config.json with a \"model_type\"");
}

}  // namespace

std::unique_ptr<TrainingTask> make_training_task(const Config& config, const std::string& from) {
  if (from.empty() && !config.model.from.empty()) check_model_folder(config.model.from);
  return task_actions(config).train(config, from);
}

}  // namespace linnet
