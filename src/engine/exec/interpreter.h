// Runs any graph node by node, each value in memory of its own: the way to look inside, and the oracle of the planned
// executor, which on the same graph and kernels gives the same bits.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "engine/exec/host_tensor.h"
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {

using NamedTensors = std::map<std::string, HostTensor>;

struct InterpreterOptions {
  KernelSet kernels = KernelSet::kReference;
  int threads = 1;
  // Called after each node with its outputs (dense copies are the caller's to make).
  std::function<void(NodeId, std::span<const TensorView>)> after_node = {};
};

struct InterpreterResult {
  NamedTensors outputs;
  NamedTensors states;  // the new values of updated inputs, by the input's name
};

// Throws Error(kUser) when an input is missing or of another type.
InterpreterResult interpret(const Graph& graph, const NamedTensors& inputs, const InterpreterOptions& options = {});

// The first node (in order) whose output holds a NaN or an infinity although its float inputs hold none, as
// "file:line: op (in module) of f32[8, 16] from -1.2 to 3.4, ...", the operands with the ranges of their values; empty
// when there is none. -inf that a mask wrote is not counted.
std::string first_non_finite(const Graph& graph, const NamedTensors& inputs, const InterpreterOptions& options = {});

}  // namespace linnet
