// What the engine knows of an op: its row in the table of all ops (engine/ops/all_ops.cpp). Kernels are listed apart
// (engine/ops/kernel.h), so passes never need them; an op outside of the table brings its own.
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

  template <class T> const T& attrs() const { return node.attrs.as<T>(); }
  // Adds a node of the gradient at the line of the forward node, by default with its attributes.
  std::vector<Tensor> add(const OpDef& op, const std::vector<Tensor>& operands) const;
  std::vector<Tensor> add(const OpDef& op, const std::vector<Tensor>& operands, Attrs attrs) const;
};

struct DecomposeArgs {
  Graph& graph;
  const Node& node;
  std::span<const Tensor> in;

  template <class T> const T& attrs() const { return node.attrs.as<T>(); }
};

struct FlopsArgs {
  const Node& node;
  std::span<const TensorType> in, out;

  template <class T> const T& attrs() const { return node.attrs.as<T>(); }
};

// The type in which kernels read or write a value that is fp32 in the model, when activations are stored in a shorter
// type such as bf16 (the pass cast_to_storage_type).
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

// OpDef::storage of an op whose kernels use the storage type for operand i (bit i of `in`) and result i (bit i of
// `out`), and fp32 for the others.
template <unsigned in, unsigned out> StorageRule reduced(const Node&) {
  StorageRule rule;
  for (unsigned bits = in; bits; bits >>= 1) rule.in.push_back(bits & 1 ? Storage::kReduced : Storage::kF32);
  for (unsigned bits = out; bits; bits >>= 1) rule.out.push_back(bits & 1 ? Storage::kReduced : Storage::kF32);
  return rule;
}

// The kind of products in a node, whose operands the precision policy rounds.
enum class ProductKind : uint8_t { kNone, kMatrix, kAttention };

// What a node does, as far as graph rewrites ask.
enum class Algebra : uint8_t {
  kOther,
  kElementwise,  // element i of the result is a function of element i of the operands
  kAdd,          // the same, and the function is the sum of two operands
  kReshape,      // the operand's elements in their order, in another shape
  kSplit,        // parts of the operand along OpDef::axis
  kConcat,       // the operands one after another along OpDef::axis
  kMove,         // the operand's elements in another order, or repeated
};
template <Algebra algebra> Algebra always(const Node&) { return algebra; }

struct OpDef {
  const char* name;

  // Types of the outputs. Throws ShapeProblem, which says what was got and what was expected.
  std::vector<TensorType> (*infer)(const InferArgs&);

  // One gradient per input, as ordinary nodes; an undefined Tensor for an input without one. nullptr: the op cannot be
  // differentiated, an error when a gradient is traced through it.
  std::vector<Tensor> (*gradient)(const GradientArgs&) = nullptr;

  // The same computation from basic ops, a Tensor per output: the fallback and the test oracle of a fused op.
  std::vector<Tensor> (*decompose)(const DecomposeArgs&) = nullptr;

  // Whether output `output` may overwrite input `input` if nothing else reads it. nullptr: never.
  bool (*may_overwrite)(const Node&, int output, int input) = nullptr;

  // Operands and results (bit i) that kernels take with strides. The last axis is always dense.
  unsigned strided_inputs = 0;
  unsigned strided_outputs = 0;

  // With with_accumulator's attributes a node has one more input at the end, to which it adds the result. nullptr: the
  // op cannot, or already does.
  bool (*can_accumulate)(const Node&) = nullptr;
  Attrs (*with_accumulator)(const Attrs&) = nullptr;

  Algebra (*algebra)(const Node&) = nullptr;      // nullptr: Algebra::kOther
  int (*axis)(const Node&) = nullptr;             // of kSplit and kConcat
  StorageRule (*storage)(const Node&) = nullptr;  // nullptr: kernels read and write fp32 alone
  // Returns the attributes of a node that computes its products in another precision.
  ProductKind product = ProductKind::kNone;
  Attrs (*with_precision)(const Attrs&, Precision) = nullptr;
  // Returns the attributes of a node that gives a row of its result the same bits for any number of rows. nullptr:
  // every kernel of the op does so anyway, or the op mixes rows.
  Attrs (*with_independent_rows)(const Attrs&) = nullptr;
  // CPU kernels, best first, of an op outside of the table of all ops, linked only if used. Other devices have none.
  std::span<const Kernel> (*kernels)() = nullptr;

  // Operands (bit i) in an order of the kernel's own: weights, arranged once if constant (engine/passes/passes.h).
  unsigned arranged_inputs = 0;
  // Recomputing it costs less than keeping its result for the backward pass (engine/passes/recompute.cpp).
  bool cheap = false;
  // On a GPU, an NVIDIA library computes it for some types. Only for these ops may the emulation of a GPU (tests) use
  // CPU kernels: every other op must have a CUDA kernel of its own.
  bool by_gpu_library = false;
  // The node's label in reports and profiles: "matmul+bias+relu". nullptr: the name with Attrs::words().
  std::string (*label)(const Node&) = nullptr;

  // Floating-point operations of the op's products; a multiply-add is two. Masked and padded positions count,
  // recomputation does not. nullptr: negligible.
  double (*flops)(const FlopsArgs&) = nullptr;
};

inline bool is(const Node& node, const OpDef& op) { return node.op == &op; }
inline bool is(const Node* node, const OpDef& op) { return node && is(*node, op); }
inline const Node* node_if(const Node* node, const OpDef& op) { return is(node, op) ? node : nullptr; }  // of the op

// The facts above of one node; a null pointer gives its default.
Algebra algebra_of(const Node& node);
bool renames(const Node& node);  // a reshape or a split: whether the results may alias the operand or parts of it
StorageRule storage_of(const Node& node);

// How the readers of a value want it stored.
struct StorageWants {
  bool reduced = false, f32 = false;
};
// Adds how a node wants its operands stored. One that it only moves is wanted as its results are. `wants`: by value.
void add_wants(const Node& node, const StorageRule& rule, std::vector<StorageWants>& wants);
std::string label_of(const Node& node);

template <class T> Attrs set_precision(const Attrs& old, Precision precision) {
  T attrs = old.as<T>();
  attrs.precision = precision;
  return attrs;
}

// OpDef::with_accumulator and the like: sets a bool member.
template <auto kMember> Attrs set_member(const Attrs& old) {
  const auto with = [&]<class T>(bool T::*member) {
    T attrs = old.as<T>();
    attrs.*member = true;
    return Attrs(attrs);
  };
  return with(kMember);
}

// OpDef::gradient of an op without gradients, and of one that passes its gradient to its first operand.
std::vector<Tensor> no_gradient(const GradientArgs& args);
std::vector<Tensor> first_gradient(const GradientArgs& args);

// OpDef::may_overwrite: any operand, the first, the one that the result replaces.
inline bool overwrites_any(const Node&, int, int) { return true; }
inline bool overwrites_first(const Node&, int, int input) { return input == 0; }
inline bool overwrites_same(const Node&, int output, int input) { return output == input; }

double node_flops(const Graph& graph, const Node& node);  // 0 if the op has no `flops`
double graph_flops(const Graph& graph);

void expect_inputs(const InferArgs& args, size_t count);
// OpDef::infer of an op with `count` operands, which `infer` may rely on.
template <size_t count, auto infer> std::vector<TensorType> takes(const InferArgs& args) {
  expect_inputs(args, count);
  return infer(args);
}
// Throws ShapeProblem with the text of all parts (strings, numbers, types, shapes) unless `condition`.
template <class... Parts> void expect(bool condition, const Parts&... parts) {
  if (!condition) throw ShapeProblem(text_of_parts(parts...));
}
// Throws Error(kShape) with the program's line and the parts as its text.
template <class... Parts> [[noreturn]] void fail_shape(SourceLine where, const Parts&... parts) {
  throw Error(ErrorKind::kShape, text_of_parts(where, ": ", parts...));
}
template <class... Parts> [[noreturn]] void fail_shape(const At& x, const Parts&... parts) {
  fail_shape(x.where, parts...);
}
// OpDef::infer of an op whose result has the first operand's type, and of one with one operand, of floats.
inline std::vector<TensorType> infer_first(const InferArgs& args) { return {args.in[0]}; }
std::vector<TensorType> infer_same_float(const InferArgs& args);

Shape leading_axes(const Shape& shape);
Shape with_size(Shape shape, int axis, int64_t size);
Shape with_axes(Shape shape, const Shape& last);  // more axes behind its own

// The results of a new node, in the graph and at the line of its first operand. Throws Error(kShape) with the line if
// that operand is undefined or its graph is gone.
std::vector<Tensor> op_results(
    const OpDef& op, const At& first, const std::vector<Tensor>& rest = {}, Attrs attrs = {});
Tensor op_result(const OpDef& op, const At& first, const std::vector<Tensor>& rest = {}, Attrs attrs = {});
std::vector<Tensor> with_more(std::vector<Tensor> operands, std::span<const Tensor> more);
// Appends the defined ones of `optional`, operands that may be left out.
std::vector<Tensor> with_defined(std::vector<Tensor> operands, std::initializer_list<Tensor> optional);
Graph* graph_of(const At& x);           // throws as op_results() does
int from_start(const At& x, int axis);  // an axis of x that may be negative, counted from the end; throws so too
}  // namespace linnet
