// The larger model whose answers a smaller one learns (models/modules/losses.h): a model folder, part of the
// graphs of training steps, with weights of its own in the store, which stay as they are.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>
#include "config/config.h"
#include "engine/plan/store.h"
#include "models/families/pretrained.h"
#include "models/modules/causal_model.h"
#include "models/modules/losses.h"
#include "models/modules/text_classifier.h"
#include "tasks/text_coder.h"

namespace linnet {

class Teacher {
 public:
  // Of distillation.teacher; null when it is empty. `classes`: of a classifier, what its outputs are to be called;
  // none: a language model. `encode`: appends the student's tokens of a text; null where data are only assumed. User
  // errors for a folder that does not go with them.
  static std::shared_ptr<const Teacher> open(const Config& config, const std::vector<std::string>& classes,
                                             const EncodeText& encode);

  void declare(Store& store) const;
  void load(const Store& store, ThreadPool& pool) const;

  // The losses of causal_loss() and classification_loss() in a training graph, with the teacher's part.
  Loss causal_loss(CausalModel& student, Trace& trace, int64_t batch, int64_t length, bool packed,
                   double label_smoothing) const;
  Loss classification_loss(TextClassifier& student, Trace& trace, int64_t batch, int64_t length, bool types) const;

 private:
  Teacher(PretrainedModel model, const Distillation& options);
  // What `answer` computes with the teacher's weights.
  Tensor logits(Trace& trace, const std::function<Tensor(Trace&)>& answer) const;

  const PretrainedModel model_;
  const ParameterLayout layout_;
  const Distillation options_;
};

}  // namespace linnet
