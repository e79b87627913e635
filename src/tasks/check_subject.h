// The model and first batch that `linnet check` examines, made small to be quick.
#pragma once
#include "config/config.h"
#include "training/check/check.h"
#include "training/run/training_run.h"

namespace linnet {
class TaskCheck {
 public:
  // Plans training on few short rows, without dropout, label smoothing, moving average or accumulation.
  explicit TaskCheck(const Config& config);
  CheckSubject& subject() { return *subject_; }

 private:
  double bf16_loss();

  Config config_;
  std::unique_ptr<TrainingTask> task_;
  std::optional<CheckSubject> subject_;
};
}  // namespace linnet
