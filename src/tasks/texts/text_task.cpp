#include "tasks/texts/text_task.h"

#include <array>

#include "base/error.h"

namespace linnet {

const TextTask& classification_task();
const TextTask& several_labels_task();
const TextTask& regression_task();
const TextTask& token_classification_task();

namespace {

// Every task on texts.
constexpr std::array kTasks{classification_task, several_labels_task, regression_task, token_classification_task};

}  // namespace

const TextTask& text_task(const Config& config) {
  for (const auto task : kTasks)
    if (task().name == config.data.task) return task();
  fail_internal("\"" + config.data.task + "\" is no task on texts");
}

const TextTask& text_task(TextProblem problem) {
  for (const auto task : kTasks)
    if (task().problem == problem) return task();
  fail_internal("no task has this problem");
}

}  // namespace linnet
