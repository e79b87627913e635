// Tensor parallel (Shoeybi et al. 2019, "Megatron-LM"): the ranks of a tensor group compute one model together, each
// with a part of its parameters and of what lies between them. The pass walks the forward graph of a loss in order and
// asks each op's sharding rule (engine/ops/sharding.h) what it makes of its operands' division; where a rule wants an operand
// in another division, an exchange is put between (ops/collective). The gradient is traced afterwards, through the
// exchanges, whose gradients are exchanges too.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/function_ref.h"
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

}  // namespace linnet
