#include "training/trainer/learner.h"
#include <malloc.h>
#include "base/fail.h"
#include "engine/plan/store.h"
#include "models/nn/pipeline_parallel.h"

namespace linnet {
SingleShapeLearner::SingleShapeLearner(const Module& model, LossFunction loss, const TrainerOptions& options,
    const ResidentOptions& resident, std::span<const ParameterGroup> groups)
    : layout_(model, groups, {}, divide_among_ranks(model, groups, loss, options.tensor, options.pipeline)),
      store_(*options.backend) {
  const LossFunction whole = loss;
  loss = loss_of_rank(std::move(loss), layout_.shared_division());
  shared_ = add_shared_regions(store_);
  trainer_ = std::make_unique<Trainer>(layout_, store_, shared_, options);
  // The user fills what the loss reads beyond the trainer's states; on pipeline stages, the whole batch.
  const ModelStages* stages = stages_of(layout_);
  const Graph graph =
      stages ? WholeLoss(whole, DType::kF32, false).graph.clone() : evaluate_graph(layout_, loss, state::kParameters);
  for (const GraphInput& input : graph.inputs()) {
    if (store_.has(input.name) || (stages && contains(model.parameters(), input.name, &ParameterSpec::name))) continue;
    const size_t bytes = graph.value(input.value).type.bytes();
    store_.declare(input.name, MemoryKind::kBatch, bytes);
    inputs_[input.name] = bytes;
  }
  if (!resident.data.empty()) resident_ = std::make_unique<ResidentSteps>(*trainer_, store_, shared_, loss, resident);
  if (options.memory > 0) {
    shape_ = trainer_->plans().add_evaluation_shape(std::move(loss));
    trainer_->plans().plan_training_within_memory(options.memory_beside);
    const uint64_t needed = store_.total_bytes() + options.memory_beside;
    if (needed > options.memory)
      fail_user("the model does not fit within ", options.memory, " bytes: it needs at least ", needed);
    malloc_trim(0);  // memory freed by the plan search should not count
  } else {
    shape_ = trainer_->plans().add_shape(std::move(loss));
  }
  store_.allocate();
  store_.touch();
  trainer_->plans().bind();
  if (resident_) resident_->bind();
  trainer_->state().initialize();
}

void* SingleShapeLearner::slot(const std::string& input, size_t bytes) {
  const auto found = inputs_.find(input);
  if (found == inputs_.end()) fail_user("the loss has no input \"", input, "\"");
  if (found->second != bytes) fail_user("input \"", input, "\" takes ", found->second, " bytes, got ", bytes);
  return store_.data(input);
}

double SingleShapeLearner::evaluate() { return trainer_->evaluate(shape_).mean(); }

std::span<float> SingleShapeLearner::parameter(const std::string& name) {
  trainer_->state().pull();
  const ParameterSlot* slot = find_parameter(layout_, name);
  if (!slot) fail_user("the model has no parameter \"", name, "\"");
  return {trainer_->state().flat(state::kParameters) + slot->offset, static_cast<size_t>(slot->spec.shape.elements())};
}
}  // namespace linnet
