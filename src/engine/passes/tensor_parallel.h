// Tensor parallel (Shoeybi et al. 2019, "Megatron-LM"): the ranks of a tensor group compute one model together, each
// with a part of its parameters and activations. The pass walks a loss's forward graph in order and asks each op's
// sharding rule (engine/ops/collective/collective.h) how it handles its operands' division; if it wants another one, an
// exchange is inserted (ops/collective). The gradient is traced afterwards; gradients of exchanges are exchanges too.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>
#include "base/functions.h"
#include "engine/ir/graph.h"
#include "engine/ops/collective/collective.h"

namespace linnet {
struct ModelStages;  // models/nn/pipeline_parallel.h

// How a tensor group divides a model, and which rank this is. Equal on all ranks except for the rank.
struct ModelDivision {
  TensorRank rank;
  std::map<std::string, Sharding> parameters;  // those that are divided, by name
  // Of a pipeline, whose ranks have whole layers each; null: this one has all layers.
  std::shared_ptr<const ModelStages> stages = nullptr;
};

// Chooses which parameters are divided. `forward` is the graph of a training loss in which each parameter is an input
// of its name; the values `results` and the graph's outputs must be whole. Pairs of linear layers with a divided value
// in between are found by trying: a weight is divided by its outputs unless a later op wants the whole value. User
// error if heads cannot be divided evenly.
ModelDivision choose_division(const Graph& forward, std::span<const ValueId> results,
    const std::set<std::string>& parameters, const TensorRank& rank);

// Appends the rank's part of `whole` to a graph and returns the values for `results`. `input` gives the inputs there,
// with the rank's types; outputs of `whole` become outputs of the graph.
using InputByName = FunctionRef<Tensor(const std::string& name, const TensorType& type)>;
std::vector<Tensor> append_of_rank(const Graph& whole, std::span<const ValueId> results, const ModelDivision& division,
    Graph& graph, InputByName input);

// Pipeline parallel (Huang et al. 2019, "GPipe"; Narayanan et al. 2019, "PipeDream"): a model is cut between blocks
// (engine/passes/passes.h) into consecutive stages, one for each rank of a pipeline. A stage computes a run of the
// nodes of a loss's forward graph, gets the values of earlier stages from the one before it, and hands on those that
// later ones read. Each stage recomputes values that depend on no trained parameter (masks, positions).

struct StageRank {
  int stage = 0, stages = 1;
  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage + 1 == stages; }
  bool operator==(const StageRank&) const = default;
};

// A rank of a pipeline and its stages. With `chunks` above 1 stages are interleaved (Narayanan et al. 2021,
// "Megatron-LM"): rank r has the stages r, r + ranks, r + 2 ranks, ...
struct PipelineRank {
  int rank = 0, ranks = 1, chunks = 1;
  bool splits_encoder = false;  // the model is cut between its encoder and its decoder
  int stages() const { return ranks * chunks; }
  StageRank stage(int chunk) const { return {chunk * ranks + rank, stages()}; }
  bool is_last() const { return rank + 1 == ranks; }  // its last chunk is the last stage
  bool operator==(const PipelineRank&) const = default;
};

// Where a model is cut. `gaps` are ascending: gap g lies before block g of the forward pass, counting each return to a
// block as another one; gap 0 follows the embeddings, and the last gap precedes the head.
struct PipelineCut {
  std::vector<int> gaps;                          // one less than there are stages
  std::vector<std::set<std::string>> parameters;  // by stage: the inputs its nodes read, constants too
  std::vector<double> work;                       // by stage: an estimate of its part of the forward pass, of 1
};

// Chooses the cut that minimizes the work of the largest stage. `forward` is the graph of a training loss in which each
// parameter is an input of its name, `results` are its results, and `trained` names the trained parameters. With
// `splits_encoder` the two stages are the encoder and the decoder, each with its embeddings. User error if there are
// too few gaps, or no encoder and decoder to split.
PipelineCut choose_cut(const Graph& forward, std::span<const ValueId> results, const std::set<std::string>& trained,
    int stages, bool splits_encoder = false);

// Connects a stage to its neighbors: values in an order that both know.
struct StageEnds {
  std::vector<Tensor> in;       // of the stage before this one
  std::vector<Tensor> out;      // for the next one
  std::vector<Tensor> results;  // of the last stage; empty in the others
};

// Names of graph inputs and outputs between stages, in the order of StageEnds. A stage's outputs are the next's inputs.
std::string stage_input(size_t i);            // values from the stage before
std::string stage_output_name(size_t i);      // values for the next one
std::string stage_gradient_input(size_t i);   // the gradients of those
std::string stage_gradient_output(size_t i);  // the gradients of stage_input(i), for the stage before
bool is_stage_input(const std::string& name);

// Appends a stage's part of `whole`, the graph that was cut, to a graph. `input` gives the inputs there: those of
// `whole`, and stage_input(i). Named outputs of `whole` become outputs of the last stage.
StageEnds append_of_stage(const Graph& whole, std::span<const ValueId> results, const std::set<std::string>& trained,
    const PipelineCut& cut, const StageRank& rank, Graph& graph, InputByName input);

// A stage's training graph as two graphs that run at different times. Values that both use are saved in between, as the
// states saved[i] of `forward`, which are inputs of `backward`.
struct SplitStage {
  Graph forward, backward;
  std::vector<std::pair<std::string, TensorType>> saved;
};

// `graph` ends its forward pass in a stage_output node (ops/collective), is optimized except for views, and has the
// outputs stage_output_name(i); its other outputs are of the backward pass. `name` names the saved values.
SplitStage split_stage(const Graph& graph, FunctionRef<std::string(size_t)> name);
}  // namespace linnet
