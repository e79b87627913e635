#include "training/run/training_task.h"

#include "base/error.h"

namespace linnet {

double Evaluation::metric(const std::string& name) const {
  for (const auto& [key, value] : metrics)
    if (key == name) return value;
  fail_internal("this task has no metric " + name);
}

}  // namespace linnet
