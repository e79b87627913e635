// What the engine knows of an op: its row in the table of all ops (ops/all_ops.cpp). Kernels are listed apart
// (ops/kernel.h), so that a pass never needs them.
#pragma once
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace linnet {

// Thrown by shape inference; the graph adds the op's name, the source line and the module path.
struct ShapeProblem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct InferArgs {
  const Attrs& attrs;
  std::span<const TensorType> in;
};

struct GradientArgs {
  Graph& graph;
  const Node& node;
  std::span<const Tensor> in, out;
  std::span<const Tensor> out_grad;  // undefined where no gradient flows into that output
};

struct DecomposeArgs {
  Graph& graph;
  const Node& node;
  std::span<const Tensor> in;
};

struct FlopsArgs {
  const Node& node;
  std::span<const TensorType> in, out;
};

struct OpDef {
  const char* name;

  // Types of the outputs. Throws ShapeProblem saying what was got and what was expected.
  std::vector<TensorType> (*infer)(const InferArgs&);

  // One gradient per input, as ordinary nodes; an undefined Tensor for an input that has none. nullptr: the op cannot
  // be differentiated, which is an error when tracing a gradient through it.
  std::vector<Tensor> (*gradient)(const GradientArgs&) = nullptr;

  // The same computation from basic ops, one Tensor per output: the fallback and the test oracle of a fused op.
  std::vector<Tensor> (*decompose)(const DecomposeArgs&) = nullptr;

  // May output `output` be written over input `input`, when nothing else reads it? nullptr: never.
  bool (*may_overwrite)(const Node&, int output, int input) = nullptr;

  // Which operands and results the kernels take with strides (bit i: operand i). The last axis is always dense.
  unsigned strided_inputs = 0;
  unsigned strided_outputs = 0;

  // The op can add to a tensor instead of writing a new one: with_accumulator returns the attributes of a node that has
  // one more input at the end, to which the result is added. nullptr: it cannot, or already does.
  bool (*can_accumulate)(const Node&) = nullptr;
  Attrs (*with_accumulator)(const Attrs&) = nullptr;

  // Running it again costs less than keeping its first result in memory for the backward pass (passes/recompute.cpp).
  bool cheap = false;

  // Floating-point operations of the op's products, a multiply-add counting as two: what speeds are quoted by.
  // Masked and padded places count, recomputation does not. nullptr: none to speak of.
  double (*flops)(const FlopsArgs&) = nullptr;
};

// By OpDef::flops; 0 where an op has none.
double node_flops(const Graph& graph, const Node& node);
double graph_flops(const Graph& graph);

// Helpers for inference.
void expect_inputs(const InferArgs& args, size_t count);
void expect(bool condition, const std::string& problem);

}  // namespace linnet
