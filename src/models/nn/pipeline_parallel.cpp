#include "models/nn/pipeline_parallel.h"
#include <algorithm>
#include "base/error.h"
#include "engine/ops/collective/collective.h"
#include "engine/ops/movement/movement.h"
#include "engine/passes/tensor_parallel.h"
#include "models/nn/tensor_parallel.h"
#include "models/nn/whole_loss.h"

namespace linnet {
namespace {

const ParameterSlot* find_in(std::span<const ParameterSlot> slots, const std::string& name) {
  const auto found = std::ranges::find_if(slots, [&](const ParameterSlot& slot) { return slot.spec.name == name; });
  return found == slots.end() ? nullptr : &*found;
}

// All ranks of a tensor group cut the graph of the first of them, so that they agree.
LossFunction loss_of_first_rank(const LossFunction& loss, const ModelDivision* tensor) {
  if (!tensor) return loss;
  ModelDivision first = *tensor;
  first.rank.rank = 0;
  return loss_of_rank(loss, std::make_shared<const ModelDivision>(std::move(first)));
}

std::shared_ptr<const ModelStages> cut_model(const Module& model, std::span<const ParameterGroup> groups,
                                             const LossFunction& loss, const PipelineRank& rank) {
  auto stages = std::make_shared<ModelStages>();
  stages->rank = rank;
  std::set<std::string> known{"random"};
  for (const ParameterSpec& spec : model.parameters()) {
    if (spec.buffer) fail_user("pipeline parallel cannot train a model with batch normalization");
    known.insert(spec.name);
    if (spec.trainable) stages->trained.insert(spec.name);
  }
  const WholeLoss whole(loss, DType::kF32, true);
  stages->cut = choose_cut(whole.graph, whole.results, stages->trained, rank.stages(), rank.splits_encoder);
  for (const GraphInput& input : whole.graph.inputs())
    if (!known.contains(input.name)) stages->batch.insert(input.name);
  // What no loss reads is the first stage's.
  for (const std::string& name : stages->trained) {
    std::vector<int>& of = stages->of[name];
    for (int stage = 0; stage < rank.stages(); ++stage)
      if (stages->cut.parameters[static_cast<size_t>(stage)].contains(name)) of.push_back(stage % rank.ranks);
    if (of.empty()) {
      of.push_back(0);
      stages->cut.parameters[0].insert(name);
    }
    std::ranges::sort(of);
    of.erase(std::unique(of.begin(), of.end()), of.end());
  }
  stages->all = std::make_shared<const ParameterLayout>(model, groups);
  return stages;
}

}  // namespace

std::shared_ptr<const ModelDivision> divide_among_ranks(const Module& model, std::span<const ParameterGroup> groups,
                                                        const LossFunction& loss, const TensorRank& tensor,
                                                        const PipelineRank& pipeline) {
  std::shared_ptr<const ModelDivision> divided = tensor.ranks > 1 ? divide_model(model, loss, tensor) : nullptr;
  if (pipeline.ranks == 1) return divided;
  ModelDivision division = divided ? *divided : ModelDivision{.rank = {}, .parameters = {}, .stages = nullptr};
  division.stages = cut_model(model, groups, loss_of_first_rank(loss, divided.get()), pipeline);
  return std::make_shared<const ModelDivision>(std::move(division));
}

std::string stage_shared_input(const std::string& output) { return "pipeline.shared." + output; }

LossFunction loss_of_stage(LossFunction loss, const std::shared_ptr<const ModelDivision>& division, int chunk) {
  if (!division || !division->stages) return loss;
  return [loss = std::move(loss), stages = division->stages, chunk](Trace& trace) -> Loss {
    const StageRank rank = stages->rank.stage(chunk);
    const auto [dtype, training] = std::pair(trace.options().dtype, trace.options().training);
    const WholeLoss whole(loss, dtype, training);
    const ParameterLayout& layout = *trace.options().layout;
    const auto input = [&](const std::string& name, const TensorType& type) {
      const ParameterSlot* slot = find_parameter(layout, name);
      if (!slot) slot = find_in(layout.constants(), name);
      if (!slot && stages->trained.contains(name))
        fail_internal("stage " + std::to_string(rank.stage) + " of the pipeline lacks the parameter " + name);
      return slot ? trace.parameter(slot->spec) : trace.input(name, type);
    };
    Graph& graph = trace.graph();
    const StageEnds ends =
        append_of_stage(whole.graph, whole.results, stages->trained, stages->cut, rank, graph, input);
    if (rank.is_last()) return {ends.results[0], ends.results[1]};
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < ends.out.size(); ++i) {
      graph.output(stage_output_name(i), ends.out[i]);
      if (training) gradients.push_back(trace.input(stage_gradient_input(i), ends.out[i].type()));
    }
    const Tensor zero = fill(graph, {dtype, {}}, 0);
    if (training) return {stage_output(ends.out, gradients), zero};
    if (chunk + 1 < stages->rank.chunks) return {zero, zero};
    for (const GraphOutput& output : whole.graph.outputs())
      graph.output(output.name, trace.input(stage_shared_input(output.name), whole.graph.value(output.value).type));
    return {zero, zero};
  };
}

}  // namespace linnet
