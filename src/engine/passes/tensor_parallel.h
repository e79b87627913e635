// Tensor parallel (Shoeybi et al. 2019, "Megatron-LM"): the ranks of a tensor group compute one model together, each
// with a part of its parameters and of what lies between them. The pass walks the forward graph of a loss in order and
// asks each op's sharding rule (engine/ops/sharding.h) what it makes of its operands' division; where a rule wants an
// operand in another division, an exchange is put between (ops/collective). The gradient is traced afterwards, through
// the exchanges, whose gradients are exchanges too.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>
#include "base/function_ref.h"
#include "engine/ir/graph.h"
#include "engine/ops/sharding.h"

namespace linnet {

struct ModelStages;  // models/nn/pipeline_parallel.h

// How the ranks of a tensor group divide a model, and which of them this one is. The same on all of them but for that.
struct ModelDivision {
  TensorRank rank;
  std::map<std::string, Sharding> parameters;  // those that are divided, by name
  // Of a pipeline, whose ranks have whole layers each; null: this one has all layers.
  std::shared_ptr<const ModelStages> stages = nullptr;
};

// Chooses which parameters are divided. `forward` is the graph of a training loss in which each parameter is an input
// of its name; the values `results` and the graph's outputs must be whole. Pairs of linear layers between which values
// stay divided are found by trying: a weight is divided by its outputs, and where an op in between wants the whole
// value, it is not. User error where heads cannot be divided evenly.
ModelDivision choose_division(const Graph& forward, std::span<const ValueId> results,
                              const std::set<std::string>& parameters, const TensorRank& rank);

// Appends the rank's part of `whole` to a graph and returns what stands for `results`. `input` gives the inputs there,
// of the types that the rank has; outputs of `whole` become outputs of the graph.
using InputOfRank = FunctionRef<Tensor(const std::string& name, const TensorType& type)>;
std::vector<Tensor> append_of_rank(const Graph& whole, std::span<const ValueId> results, const ModelDivision& division,
                                   Graph& graph, InputOfRank input);

// Pipeline parallel (Huang et al. 2019, "GPipe"; Narayanan et al. 2019, "PipeDream"): the layers of a model are cut
// into stages that follow each other, one for each rank of a pipeline. The forward graph of a loss is cut between
// blocks (engine/passes/passes.h): a stage computes a run of its nodes, gets from the stage before it the
// values that they read of earlier stages, and hands on what later ones read. Values that depend on no trained
// parameter (masks, positions) are computed again by each stage that reads them.

// One stage of a pipeline.
struct StageRank {
  int stage = 0, stages = 1;
  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage + 1 == stages; }
  bool operator==(const StageRank&) const = default;
};

// A rank of a pipeline and its stages. With `chunks` above 1 the stages are interleaved (Narayanan et al. 2021,
// "Megatron-LM"): each rank has so many of them, rank r the stages r, r + ranks, r + 2 ranks, ...
struct PipelineRank {
  int rank = 0, ranks = 1, chunks = 1;
  bool splits_encoder = false;  // the model is cut between its encoder and its decoder
  int stages() const { return ranks * chunks; }
  StageRank stage(int chunk) const { return {chunk * ranks + rank, stages()}; }
  bool is_last() const { return rank + 1 == ranks; }  // its last chunk is the last stage
  bool operator==(const PipelineRank&) const = default;
};

// Where a model is cut. `gaps` are in ascending order: gap g lies before block g of the forward pass, counting each
// return to a block that was left as another one; gap 0 is after the embeddings, and the last one before the head.
struct PipelineCut {
  std::vector<int> gaps;                          // one less than there are stages
  std::vector<std::set<std::string>> parameters;  // by stage: the inputs its nodes read, constants too
  std::vector<double> work;                       // by stage: an estimate of its part of the forward pass, of 1
};

// Chooses the cut whose largest stage has least work. `forward` is the graph of a training loss in which each parameter
// is an input of its name, and `results` what it is for; `trained` are the names of those parameters that are trained.
// User error where there are fewer gaps than are needed. With `splits_encoder` the two stages are the encoder and the
// decoder, each with its embeddings; user error for a model that has no encoder with a decoder.
PipelineCut choose_cut(const Graph& forward, std::span<const ValueId> results, const std::set<std::string>& trained,
                       int stages, bool splits_encoder = false);

// What joins a stage to its neighbors: values in an order that both know.
struct StageEnds {
  std::vector<Tensor> in;       // of the stage before this one
  std::vector<Tensor> out;      // for the next one
  std::vector<Tensor> results;  // of the last stage; empty in the others
};

// The names of graph inputs and outputs that pass between stages, in the order of StageEnds. Of a stage's outputs and
// their gradients the next one knows its inputs and theirs.
std::string stage_input(size_t i);            // values from the stage before
std::string stage_output_name(size_t i);      // values for the next one
std::string stage_gradient_input(size_t i);   // the gradients of those
std::string stage_gradient_output(size_t i);  // the gradients of stage_input(i), for the stage before
bool is_stage_input(const std::string& name);

// Appends a stage's part of `whole`, which is a graph of the model that was cut, to a graph. `input` gives the graph's
// inputs there: those of `whole`, and stage_input(i). Named outputs of `whole` become outputs of the last stage.
using InputOfStage = FunctionRef<Tensor(const std::string& name, const TensorType& type)>;
StageEnds append_of_stage(const Graph& whole, std::span<const ValueId> results, const std::set<std::string>& trained,
                          const PipelineCut& cut, const StageRank& rank, Graph& graph, InputOfStage input);

// A stage's training graph in two that run at different times. What the second reads of what the first has computed is
// saved between them, as the states saved[i] of `forward`, which are inputs of `backward`.
struct SplitStage {
  Graph forward, backward;
  std::vector<std::pair<std::string, TensorType>> saved;
};

// `graph` ends its forward pass in a stage_output node (ops/stage_output), is optimized but for its views, and has the
// outputs stage_output_name(i); what else it gives is of the backward pass. `name` makes the names of what is saved.
SplitStage split_stage(const Graph& graph, FunctionRef<std::string(size_t)> name);

}  // namespace linnet
