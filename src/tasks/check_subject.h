// What `linnet check` examines: the model of a configuration with its first batch, made small enough to be quick.
#pragma once
#include <memory>
#include <optional>
#include "config/config.h"
#include "training/check/check.h"
#include "training/run/training_task.h"

namespace linnet {

class TaskCheck {
 public:
  // Reads the data and plans a training without dropout, label smoothing, moving average and accumulation, on few and
  // short rows.
  explicit TaskCheck(const Config& config);
  CheckSubject& subject() { return *subject_; }

 private:
  double bf16_loss();

  Config config_;
  std::unique_ptr<TrainingTask> task_;
  std::optional<CheckSubject> subject_;
};

}  // namespace linnet
