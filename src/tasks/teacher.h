// Distillation's teacher (models/modules/losses.h): a model folder in training graphs, with its own constant weights.
#pragma once
#include "config/config.h"
#include "engine/plan/store.h"
#include "models/families/pretrained.h"
#include "models/modules/causal_model.h"
#include "models/modules/losses.h"
#include "tasks/text_coder.h"

namespace linnet {
class Teacher {
 public:
  // The model distillation.teacher; null if empty. `classes`: names of a classifier's outputs; none: a language model.
  // `encode`: appends the student's tokens of a text; null if data are assumed. User error if the folder does not fit.
  static std::shared_ptr<const Teacher> open(
      const Config& config, const std::vector<std::string>& classes, const EncodeText& encode);

  void declare(Store& store) const;
  void load(const Store& store, ThreadPool& pool) const;

  // causal_loss() and classification_loss() in a training graph, with the teacher's part.
  Loss causal_loss(
      CausalModel& student, Trace& trace, int64_t batch, int64_t length, bool packed, double label_smoothing) const;
  Loss classification_loss(TextClassifier& student, Trace& trace, int64_t batch, int64_t length, bool types) const;

 private:
  Teacher(PretrainedModel model, const Distillation& options);
  // Computes `answer` with the teacher's weights.
  Tensor logits(Trace& trace, const std::function<Tensor(Trace&)>& answer) const;

  const PretrainedModel model_;
  const ParameterLayout layout_;
  const Distillation options_;
};
}  // namespace linnet
