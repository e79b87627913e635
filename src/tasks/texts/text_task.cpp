#include "tasks/texts/text_task.h"

#include <array>

#include "base/error.h"

namespace linnet {

// Every task on texts; its file defines NAME_task().
#define LINNET_TEXT_TASKS(TASK) \
  TASK(classification)          \
  TASK(several_labels)          \
  TASK(regression)              \
  TASK(token_classification)

#define LINNET_DECLARE(name) const TextTask& name##_task();
LINNET_TEXT_TASKS(LINNET_DECLARE)

namespace {

#define LINNET_LIST(name) name##_task,
constexpr std::array kTasks{LINNET_TEXT_TASKS(LINNET_LIST)};

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
