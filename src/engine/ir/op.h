// What the engine knows of an op: its row in the table of all ops (engine/ops/all_ops.cpp). Kernels are listed apart
// (engine/ops/kernel.h), so that a pass never needs them; an op that is not in the table brings its own.
#pragma once
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>
#include "base/fail.h"
#include "engine/ir/graph.h"

namespace linnet {

enum class Precision : uint8_t;  // engine/kernels/precision.h
struct Kernel;                   // engine/ops/kernel.h

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
  std::span<const uint8_t> wanted;   // by operand: 1 where its gradient is used, so that an op may leave others out

  template <class T>
  const T& attrs() const {
    return node.attrs.as<T>();
  }
  // The results of a node of the gradient, at the line of the forward node and, unless told, with its attributes.
  std::vector<Tensor> add(const OpDef& op, const std::vector<Tensor>& operands) const;
  std::vector<Tensor> add(const OpDef& op, const std::vector<Tensor>& operands, Attrs attrs) const;
};

struct DecomposeArgs {
  Graph& graph;
  const Node& node;
  std::span<const Tensor> in;

  template <class T>
  const T& attrs() const {
    return node.attrs.as<T>();
  }
};

struct FlopsArgs {
  const Node& node;
  std::span<const TensorType> in, out;

  template <class T>
  const T& attrs() const {
    return node.attrs.as<T>();
  }
};

// In which type the kernels read or write a value that is fp32 in the model, where activations are stored in a shorter
// type, such as bf16 (the pass cast_to_storage_type).
enum class Storage : uint8_t {
  kF32,       // fp32
  kReduced,   // the storage type
  kAny,       // an operand: either of the two; a result: the one its readers ask for
  kMoved,     // of ops that only move elements: results have the type of the operands
  kAsResult,  // of an operand that result 0 is added to: the type of result 0
  kCopied,    // of an operand: fp32, but on a device a parameter's copy in the storage type where result 0 has that
};
struct StorageRule {
  std::vector<Storage> in = {}, out = {};  // by operand and result
  Storage rest = Storage::kF32;            // of those beyond the lists
  Storage operand(size_t i) const { return i < in.size() ? in[i] : rest; }
  Storage result(size_t i) const { return i < out.size() ? out[i] : rest; }
};

// OpDef::storage of an op whose kernels read operand i (bit i of `in`) and write result i (bit i of `out`) in the
// storage type, and the others in fp32.
template <unsigned in, unsigned out>
StorageRule reduced(const Node&) {
  StorageRule rule;
  for (unsigned bits = in; bits; bits >>= 1) rule.in.push_back(bits & 1 ? Storage::kReduced : Storage::kF32);
  for (unsigned bits = out; bits; bits >>= 1) rule.out.push_back(bits & 1 ? Storage::kReduced : Storage::kF32);
  return rule;
}

// Of what products a node's arithmetic consists, whose operands the precision policy rounds.
enum class ProductKind : uint8_t { kNone, kMatrix, kAttention };

// What a node does to its operands, as far as rewrites of graphs ask.
enum class Algebra : uint8_t {
  kOther,
  kElementwise,  // element i of the result is a function of element i of the operands
  kAdd,          // the same, and the function is the sum of two operands
  kReshape,      // the operand's elements in their order, in another shape
  kSplit,        // parts of the operand along OpDef::axis
  kConcat,       // the operands one after another along OpDef::axis
  kMove,         // the operand's elements in another order, or repeated
};
template <Algebra algebra>
Algebra always(const Node&) {
  return algebra;
}

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

  // What it does to its operands. nullptr: Algebra::kOther.
  Algebra (*algebra)(const Node&) = nullptr;
  int (*axis)(const Node&) = nullptr;  // of kSplit and kConcat
  // nullptr: the kernels read and write fp32 alone.
  StorageRule (*storage)(const Node&) = nullptr;
  // with_precision returns the attributes of a node that computes its products in another precision.
  ProductKind product = ProductKind::kNone;
  Attrs (*with_precision)(const Attrs&, Precision) = nullptr;
  // Returns the attributes of a node that gives each row of its result the same bits whatever the number of rows is.
  // nullptr: every kernel of the op does so anyway, or the op mixes rows.
  Attrs (*with_independent_rows)(const Attrs&) = nullptr;
  // Kernels for the CPU, best first, of an op that is not in the table of all ops: a program has them only if it uses
  // the op. Other devices have none for it.
  std::span<const Kernel> (*kernels)() = nullptr;

  // Operands (bit i) that lie in an order of the kernel's own: weights, arranged once where they do not change
  // (engine/passes/passes.h).
  unsigned arranged_inputs = 0;
  // Running it again costs less than keeping its first result in memory for the backward pass
  // (engine/passes/recompute.cpp).
  bool cheap = false;
  // On a GPU one of NVIDIA's libraries computes it, for some types at least. The emulation of a GPU (tests) lets the
  // CPU's kernels stand in for these ops alone: every other op must have a CUDA kernel of its own.
  bool by_gpu_library = false;
  // What a node is in reports of fusions and in profiles: "matmul+bias+relu". nullptr: the name with Attrs::words().
  std::string (*label)(const Node&) = nullptr;

  // Floating-point operations of the op's products, a multiply-add counting as two: what speeds are quoted by.
  // Masked and padded places count, recomputation does not. nullptr: none to speak of.
  double (*flops)(const FlopsArgs&) = nullptr;
};

inline bool is(const Node& node, const OpDef& op) { return node.op == &op; }
inline bool is(const Node* node, const OpDef& op) { return node && is(*node, op); }

// The facts above of one node, with what a null pointer stands for.
Algebra algebra_of(const Node& node);
StorageRule storage_of(const Node& node);
std::string label_of(const Node& node);

// OpDef::with_precision of attributes with a member `precision`.
template <class T>
Attrs set_precision(const Attrs& old, Precision precision) {
  T attrs = old.as<T>();
  attrs.precision = precision;
  return attrs;
}

// OpDef::with_accumulator and the like: sets a member, which is a bool.
template <auto kMember>
Attrs set_member(const Attrs& old) {
  const auto with = [&]<class T>(bool T::*member) {
    T attrs = old.as<T>();
    attrs.*member = true;
    return Attrs(attrs);
  };
  return with(kMember);
}

// OpDef::gradient of an op through which nothing flows back, and of one that passes a gradient on to its first operand.
std::vector<Tensor> no_gradient(const GradientArgs& args);
std::vector<Tensor> first_gradient(const GradientArgs& args);

// OpDef::may_overwrite: any operand, the first, the one that the result takes the place of.
inline bool overwrites_any(const Node&, int, int) { return true; }
inline bool overwrites_first(const Node&, int, int input) { return input == 0; }
inline bool overwrites_same(const Node&, int output, int input) { return output == input; }

// By OpDef::flops; 0 where an op has none.
double node_flops(const Graph& graph, const Node& node);
double graph_flops(const Graph& graph);

// Helpers for inference.
void expect_inputs(const InferArgs& args, size_t count);
// Throws ShapeProblem with the text of all parts: strings, numbers, types and shapes.
template <class... Parts>
void expect(bool condition, const Parts&... parts) {
  if (!condition) throw ShapeProblem(text_of_parts(parts...));
}
// OpDef::infer of an op with one operand, a float, whose type is the result's.
std::vector<TensorType> infer_same_float(const InferArgs& args);

// The shape without its last axis; with another size of an axis.
Shape leading_axes(const Shape& shape);
Shape with_size(Shape shape, int axis, int64_t size);

// What an op's function does: the results of a new node, in the graph and at the line of its first operand. Throws
// Error(kShape) naming the line when that is undefined or its graph is gone.
std::vector<Tensor> op_results(const OpDef& op, const At& first, const std::vector<Tensor>& rest = {},
                               Attrs attrs = {});
// The first of them.
Tensor op_result(const OpDef& op, const At& first, const std::vector<Tensor>& rest = {}, Attrs attrs = {});
// Those of the list that are defined, behind the others: operands that may be left out.
std::vector<Tensor> with_defined(std::vector<Tensor> operands, std::initializer_list<Tensor> optional);
// The graph of an operand, or the error above.
Graph* graph_of(const At& x);

}  // namespace linnet
