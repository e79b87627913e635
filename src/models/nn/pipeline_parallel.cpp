#include "models/nn/pipeline_parallel.h"
#include "base/fail.h"
#include "engine/ops/collective/collective.h"
#include "engine/ops/movement/movement.h"
#include "engine/passes/passes.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
const ParameterSlot* find_any(const ParameterLayout& layout, const std::string& name) {
  const ParameterSlot* slot = find_parameter(layout, name);
  return slot ? slot : find_item(layout.constants(), name, &ParameterSlot::name);
}

// All ranks of a tensor group divide the graph of its first rank, so that they agree.
LossFunction loss_of_first_rank(const LossFunction& loss, const ModelDivision* tensor) {
  if (!tensor) return loss;
  ModelDivision first = *tensor;
  first.rank.rank = 0;
  return loss_of_rank(loss, std::make_shared<const ModelDivision>(std::move(first)));
}

std::shared_ptr<const ModelStages> cut_model(
    const Module& model, std::span<const ParameterGroup> groups, const LossFunction& loss, const PipelineRank& rank) {
  auto stages = std::make_shared<ModelStages>();
  stages->rank = rank;
  for (const ParameterSpec& spec : model.parameters()) {
    if (spec.buffer) fail_user("pipeline parallel cannot train a model with batch normalization");
    if (spec.trainable) stages->trained.insert(spec.name);
  }
  const WholeLoss whole(loss, DType::kF32, true);
  stages->cut = choose_cut(whole.graph, whole.results, stages->trained, rank.stages(), rank.splits_encoder);
  // Parameters that no loss reads belong to the first stage.
  for (const std::string& name : stages->trained) {
    std::vector<int>& of = stages->of[name];
    for (int stage = 0; stage < rank.stages(); ++stage)
      if (stages->cut.parameters[stage].contains(name)) of.push_back(stage % rank.ranks);
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

std::shared_ptr<const ModelDivision> divide_model(
    const Module& model, const LossFunction& loss, const TensorRank& rank) {
  std::set<std::string> parameters;
  for (const ParameterSpec& spec : model.parameters()) {
    if (spec.buffer) fail_user("tensor parallel cannot train a model with batch normalization");
    // An adapter's first matrix is small (models/nn/low_rank.h), and dividing its rows would cost a sum of the layer's
    // whole result: every rank has all of it, and its share of the rows of the second.
    if (spec.trainable && !matches(spec.name, "*.lora_A.*")) parameters.insert(spec.name);
  }
  const WholeLoss whole(loss, DType::kF32, true);
  auto division = std::make_shared<const ModelDivision>(choose_division(whole.graph, whole.results, parameters, rank));
  if (division->parameters.empty())
    fail_user(
        "tensor parallel finds nothing to divide in this model: it divides attention, pairs of linear layers, "
        "and vocabularies");
  return division;
}

std::string layers_of(const ModelStages& stages, const StageRank& stage) {
  const std::set<std::string>& parameters = stages.cut.parameters[stage.stage];
  std::vector<std::string> blocks;
  for (const ParameterSlot& slot : stages.all->parameters()) {
    const std::string block(block_path(slot.spec.name));
    if (!block.empty() && parameters.contains(slot.spec.name) && !contains(blocks, block)) blocks.push_back(block);
  }
  if (blocks.empty()) return stage.is_first() ? "embeddings" : stage.is_last() ? "output layer" : "";
  return blocks.front() + (blocks.size() > 1 ? " to " + blocks.back() : "");
}
}  // namespace

WholeLoss::WholeLoss(const LossFunction& loss, DType dtype, bool training) {
  Trace trace({.dtype = dtype, .training = training});
  const Loss traced = loss(trace);
  results = {traced.sum.id, traced.count.id};
  graph = trace.finish();
}

std::shared_ptr<const ModelDivision> divide_among_ranks(const Module& model, std::span<const ParameterGroup> groups,
    const LossFunction& loss, const TensorRank& tensor, const PipelineRank& pipeline) {
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
      const ParameterSlot* slot = find_any(layout, name);
      if (!slot && stages->trained.contains(name))
        fail_internal("stage ", rank.stage, " of the pipeline lacks the parameter ", name);
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

LossFunction loss_of_rank(LossFunction loss, std::shared_ptr<const ModelDivision> division) {
  if (!division || division->rank.ranks == 1) return loss;
  return [loss = std::move(loss), division = std::move(division)](Trace& trace) -> Loss {
    const WholeLoss whole(loss, trace.options().dtype, trace.options().training);
    const ParameterLayout* layout = trace.options().layout;
    const auto input = [&](const std::string& name, const TensorType& type) {
      // Without a layout it is a WholeLoss of the rank, which is cut into stages.
      const ParameterSlot* slot = layout ? find_any(*layout, name) : nullptr;
      return slot ? trace.parameter(slot->spec) : trace.input(name, type);
    };
    const std::vector<Tensor> found = append_of_rank(whole.graph, whole.results, *division, trace.graph(), input);
    return {found[0], found[1]};
  };
}

std::string stage_text(const ParameterLayout& layout) {
  const ModelStages* stages = stages_of(layout);
  if (!stages) return "";
  const PipelineRank& rank = stages->rank;
  std::string numbers, layers;
  double work = 0;
  for (int chunk = 0; chunk < rank.chunks; ++chunk) {
    const StageRank stage = rank.stage(chunk);
    const bool is_last = chunk + 1 == rank.chunks;
    numbers += (chunk == 0 ? " " : is_last ? " and " : ", ") + std::to_string(stage.stage);
    layers += (chunk > 0 ? "; " : "") + layers_of(*stages, stage);
    work += stages->cut.work[stage.stage];
  }
  return (rank.chunks > 1 ? "stages" : "stage") + numbers + ": " + layers + ", " +
         std::to_string(static_cast<int>(std::lround(100 * work))) + "% of the work";
}

const ModelStages* stages_of(const ParameterLayout& layout) {
  return layout.division() ? layout.division()->stages.get() : nullptr;
}

const ParameterLayout& of_all_stages(const ParameterLayout& layout) {
  const ModelStages* stages = stages_of(layout);
  return stages ? *stages->all : layout;
}

const ParameterSlot* find_parameter(const ParameterLayout& layout, const std::string& name) {
  return find_item(layout.parameters(), name, &ParameterSlot::name);
}

bool is_copy(const ParameterLayout& layout, const TrainedRange& range) {
  const ModelStages* stages = stages_of(layout);
  const auto first = std::ranges::find(layout.parameters(), range.offset, &ParameterSlot::offset);
  return stages && !stages->owns(first->spec.name);
}

bool is_in_chunk(const ParameterLayout& layout, const TrainedRange& range, int chunk) {
  const ModelStages* stages = stages_of(layout);
  if (!stages) return true;
  const auto first = std::ranges::find(layout.parameters(), range.offset, &ParameterSlot::offset);
  return contains(stages->chunks_with(first->spec.name), chunk);
}
}  // namespace linnet
