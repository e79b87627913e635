// A model whose layers the ranks of a pipeline share, and which those of a tensor group compute together
// (engine/passes/tensor_parallel.h): what of it a rank has, which goes into the ParameterLayout, and the losses of a
// rank, which are traced with that layout.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>
#include "engine/passes/tensor_parallel.h"
#include "models/nn/loss.h"
#include "models/nn/module.h"
#include "models/nn/parameter_layout.h"

namespace linnet {

struct TensorRank;  // engine/ops/sharding.h

// The stages of a model. The same on all ranks but for `rank`.
struct ModelStages {
  PipelineRank rank;
  PipelineCut cut;
  std::set<std::string> trained;               // the names of the model's parameters, but for constants
  std::map<std::string, std::vector<int>> of;  // by parameter: the ranks that have it, in ascending order
  std::set<std::string> batch;                 // the inputs of losses that come with each batch
  std::shared_ptr<const ParameterLayout> all;  // that the model has without stages: what files hold, in their order

  // Which of this rank's stages have a parameter or a constant.
  std::vector<int> chunks_with(const std::string& parameter) const {
    std::vector<int> chunks;
    for (int chunk = 0; chunk < rank.chunks; ++chunk)
      if (cut.parameters[static_cast<size_t>(rank.stage(chunk).stage)].contains(parameter)) chunks.push_back(chunk);
    return chunks;
  }
  bool has(const std::string& parameter) const { return !chunks_with(parameter).empty(); }
  // The first rank that has a parameter: it counts it in the gradient's norm, and gives it to files.
  int owner(const std::string& parameter) const { return of.at(parameter).front(); }
  bool owns(const std::string& parameter) const { return owner(parameter) == rank.rank; }
};

// How ranks share a model: its layers between those of a pipeline, and what is in them between those of a tensor group;
// null where neither has several. `loss` is any of the model's training losses: how a model is divided does not depend
// on the batch's shape. `groups` are those of its ParameterLayout. User error for a model that cannot be divided so.
std::shared_ptr<const ModelDivision> divide_among_ranks(const Module& model, std::span<const ParameterGroup> groups,
                                                        const LossFunction& loss, const TensorRank& tensor,
                                                        const PipelineRank& pipeline);

// Of a layout: null where it has all layers.
const ModelStages* stages_of(const ParameterLayout& layout);
// The layout that the model has without stages.
const ParameterLayout& of_all_stages(const ParameterLayout& layout);
// Whether an earlier rank has the range's parameters too, and counts their gradient in the model's norm.
bool is_copy(const ParameterLayout& layout, const TrainedRange& range);
// Whether one of the rank's stages has the range's parameters; without stages all are in chunk 0.
bool is_in_chunk(const ParameterLayout& layout, const TrainedRange& range, int chunk);
// A parameter that the layout has; null: it has none of that name.
const ParameterSlot* find_parameter(const ParameterLayout& layout, const std::string& name);

// The loss as a stage of this rank computes it, for a trace whose layout has the stages; with tensor parallel `loss` is
// that of the rank (loss_of_rank()). In training, all stages but the last return a stage_output (ops/stage_output)
// instead of a loss; otherwise 0. The graph's inputs and outputs are stage_input(i), stage_output_name(i) and, in
// training, stage_gradient_input(i). In evaluation the last stage of every rank has the outputs that the loss has
// named: on the last rank they are computed, on the others they are inputs as well, stage_shared_input(name), which the
// last rank's values are to be written to. Without stages, the loss itself.
LossFunction loss_of_stage(LossFunction loss, const std::shared_ptr<const ModelDivision>& division, int chunk);
std::string stage_shared_input(const std::string& output);

// The loss as a rank of a tensor group computes it, for a trace whose layout has the division, or that has no layout.
// Its value is whole. Without a division, the loss itself.
LossFunction loss_of_rank(LossFunction loss, std::shared_ptr<const ModelDivision> division);

// A loss as a graph on its own, with each parameter as an input of its name: what decides how ranks share a model.
struct WholeLoss {
  WholeLoss(const LossFunction& loss, DType dtype, bool training);
  Graph graph;
  std::vector<ValueId> results;  // sum and count
};

// "stage 0: encoder.layers.0 to encoder.layers.2, 48% of the work", by the blocks of its parameters; of a stage without
// blocks "embeddings" or "output layer". Of a rank with several stages "stages 0 and 2: layers.0; layers.4 to layers.5,
// 48% of the work". Empty for a layout of all stages.
std::string stage_text(const ParameterLayout& layout);

}  // namespace linnet
