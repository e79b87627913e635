// Divides a model among ranks: layers by pipeline stages, the work in a layer by tensor groups
// (engine/passes/tensor_parallel.h). The division goes into the ParameterLayout, with which a rank's losses are traced.
#pragma once
#include "engine/passes/tensor_parallel.h"
#include "models/nn/loss.h"
#include "models/nn/module.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
struct TensorRank;  // engine/ops/collective/collective.h

// The same on all ranks but for `rank`.
struct ModelStages {
  PipelineRank rank;
  PipelineCut cut;
  std::set<std::string> trained;               // the names of the model's parameters, but for constants
  std::map<std::string, std::vector<int>> of;  // by parameter: the ranks that have it, in ascending order
  std::shared_ptr<const ParameterLayout> all;  // of the model without stages: what files hold, in their order

  // Which of this rank's stages have a parameter or a constant.
  std::vector<int> chunks_with(const std::string& parameter) const {
    std::vector<int> chunks;
    for (int chunk = 0; chunk < rank.chunks; ++chunk)
      if (cut.parameters[rank.stage(chunk).stage].contains(parameter)) chunks.push_back(chunk);
    return chunks;
  }
  bool has(const std::string& parameter) const { return !chunks_with(parameter).empty(); }
  // The first rank with a parameter: it counts it in the gradient's norm and writes it to files.
  int owner(const std::string& parameter) const { return of.at(parameter).front(); }
  bool owns(const std::string& parameter) const { return owner(parameter) == rank.rank; }
};

// How pipeline ranks and tensor ranks share a model; null if neither has several. `loss` is any of its training losses,
// of any batch shape; `groups` are those of its ParameterLayout. User error if the model cannot be divided so.
std::shared_ptr<const ModelDivision> divide_among_ranks(const Module& model, std::span<const ParameterGroup> groups,
    const LossFunction& loss, const TensorRank& tensor, const PipelineRank& pipeline);

const ModelStages* stages_of(const ParameterLayout& layout);  // null if it has all layers
const ParameterLayout& of_all_stages(const ParameterLayout& layout);
// Whether an earlier rank has the range's parameters too and counts their gradient in the model's norm.
bool is_copy(const ParameterLayout& layout, const TrainedRange& range);
// Whether that stage of the rank has the range's parameters; without stages all are in chunk 0.
bool is_in_chunk(const ParameterLayout& layout, const TrainedRange& range, int chunk);
const ParameterSlot* find_parameter(const ParameterLayout& layout, const std::string& name);  // null: none

// The loss as a stage of this rank computes it, for a trace whose layout has the stages; with tensor parallel `loss` is
// loss_of_rank(). All stages but the last return a stage_output (ops/collective) in training, 0 in evaluation. The
// graph's inputs and outputs are stage_input(i), stage_output_name(i) and, in training, stage_gradient_input(i). In
// evaluation the last stage of every rank has the loss's named outputs: the last rank computes them, the others take
// them as inputs stage_shared_input(name), to be filled with its values. Without stages, the loss itself.
LossFunction loss_of_stage(LossFunction loss, const std::shared_ptr<const ModelDivision>& division, int chunk);
std::string stage_shared_input(const std::string& output);

// The loss as a rank of a tensor group computes it, for a trace whose layout has the division or that has no layout.
// Its value is whole. Without a division, the loss itself.
LossFunction loss_of_rank(LossFunction loss, std::shared_ptr<const ModelDivision> division);

// A loss as a graph with each parameter as an input of its name, from which the division is decided.
struct WholeLoss {
  WholeLoss(const LossFunction& loss, DType dtype, bool training);
  Graph graph;
  std::vector<ValueId> results;  // sum and count
};

// "stage 0: encoder.layers.0 to encoder.layers.2, 48% of the work", or "embeddings" or "output layer" if it has no
// blocks; with several stages "stages 0 and 2: layers.0; layers.4 to layers.5, 48% of the work". Empty without stages.
std::string stage_text(const ParameterLayout& layout);
}  // namespace linnet
