// What an op's lowering to ONNX sees: one node, the ONNX values that stand for its operands, and the
// graph that it adds nodes to. Integers (i32 here) are int64 there; bytes are uint8.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "engine/ir/graph.h"
#include "engine/kernels/pointwise/expression.h"
#include "onnx/file/builder.h"

namespace linnet {

// Which of several equal ways to compute something is written. The defaults suit every runtime; the others are what
// ONNX Runtime's transformer optimizer (onnxruntime.transformers.optimizer) looks for.
struct OnnxForm {
  // Queries, keys and values are products of their own instead of one product that is split (its FusionAttention).
  bool separate_projections = false;
  // Above 0: the most keys there can be. A causal mask is cut from a constant of that size, and the projection after
  // attention is a Gemm (its FusionGptAttention).
  int64_t causal_mask_size = 0;
};

// A parameter's values, for initializers.
struct OnnxParameter {
  std::string name;
  Shape shape;
  const float* values;
  std::shared_ptr<const void> owner = {};  // what keeps `values` alive; null: the caller
};

class OnnxLowering {
 public:
  // Traces of one model, one for each set of sizes; they must be alike but for sizes.
  OnnxLowering(OnnxBuilder& builder, std::span<const Graph> traces, const SizeSets& sets, const OnnxForm& form = {});

  // Declares an input of the graphs: one of ONNX, a parameter, or lengths that an input of ONNX gives as a mask.
  void bind_input(ValueId value);
  void bind_parameter(ValueId value, const OnnxParameter& parameter);
  // `mask` int64 [B, keys]: 1 where a key counts. Stands for lengths i32 [B], which are its sums where they are read.
  void bind_key_mask(ValueId lengths, const std::string& mask);
  // Lowers every node in order. User error naming the op of one that ONNX cannot have.
  void run();
  const std::string& value(ValueId id) const { return names_.at(id); }

  // --- For lowerings ---
  OnnxBuilder& builder;
  const OnnxForm form;
  const Graph& graph() const { return traces_[0]; }
  const Node& node() const { return graph().node(current_); }
  template <class Attrs>
  const Attrs& attrs() const {
    return node().attrs.as<Attrs>();
  }
  size_t operands() const { return node().in.size(); }

  const std::string& in(size_t operand) const { return names_.at(node().in[operand]); }
  const SymbolicShape& in_shape(size_t operand) const { return shape_of(node().in[operand]); }
  const SymbolicShape& out_shape(size_t result);
  TensorType in_type(size_t operand) const { return graph().value(node().in[operand]).type; }
  TensorType out_type(size_t result) const { return graph().value(node().out[result]).type; }
  void set(size_t result, std::string name) { names_[node().out[result]] = std::move(name); }
  // The node's first result as a node of ONNX.
  void add(const std::string& op, std::vector<std::string> in, std::vector<OnnxAttribute> attributes = {}) {
    set(0, builder.add(op, std::move(in), std::move(attributes)));
  }
  bool is_used(size_t result) const { return uses_[node().out[result]] > 0; }

  // A number of the node's attributes that may depend on the sizes.
  SymbolicSize fit(const std::function<int64_t(const Node&)>& number);

  // The operand with its axes in another order: output axis i is axis order[i]. A parameter that nothing else reads is
  // stored so.
  std::string arranged(size_t operand, const std::vector<int64_t>& order) {
    return arranged_value(node().in[operand], order);
  }
  std::string arranged_value(ValueId id, const std::vector<int64_t>& order);
  // Rows [first, first + count) of a parameter, as an initializer of their own, their axes in the given order. `part`
  // numbers them in its name.
  std::string parameter_rows(ValueId id, int part, int64_t first, int64_t count, const std::vector<int64_t>& order);
  bool is_parameter(ValueId id) const { return parameters_.contains(id); }
  // A float [B, 1, 1, keys]: 0 where a key counts, the lowest number elsewhere. `operand` is lengths i32 [B].
  std::string key_mask(size_t operand, const SymbolicSize& keys);
  // Of any value of the graph.
  const std::string& name_of(ValueId id) const { return names_.at(id); }
  const SymbolicShape& shape_of(ValueId id) const { return shapes_[id]; }
  const Node* producer(ValueId id) const { return producer_of(graph(), id); }

  [[noreturn]] void fail(const std::string& problem) const;

 private:
  bool attributes_differ() const;

  std::span<const Graph> traces_;
  const SizeSets& sets_;
  std::vector<SymbolicShape> shapes_;
  std::vector<int> uses_;
  std::map<ValueId, std::string> names_, key_masks_;
  std::map<ValueId, OnnxParameter> parameters_;
  NodeId current_ = 0;
  bool sizes_read_ = false;  // the lowering of the current node asked for sizes
};

// The operators of ONNX that are one function of each element. Those of one operand are read by this table, too; to the
// others ONNX adds whole numbers, or more operands.
struct OnnxFunctionRow {
  const char* name;
  Scalar function;
  int operands;
};
inline constexpr OnnxFunctionRow kOnnxFunctions[] = {
    {"Abs", Scalar::kAbs, 1},   {"Add", Scalar::kAdd, 2},     {"Atan", Scalar::kAtan, 1},
    {"Cos", Scalar::kCos, 1},   {"Div", Scalar::kDiv, 2},     {"Erf", Scalar::kErf, 1},
    {"Exp", Scalar::kExp, 1},   {"Floor", Scalar::kFloor, 1}, {"Log", Scalar::kLog, 1},
    {"Max", Scalar::kMax, 2},   {"Min", Scalar::kMin, 2},     {"Mul", Scalar::kMul, 2},
    {"Neg", Scalar::kNeg, 1},   {"Pow", Scalar::kPow, 2},     {"Reciprocal", Scalar::kReciprocal, 1},
    {"Relu", Scalar::kRelu, 1}, {"Round", Scalar::kRound, 1}, {"Sigmoid", Scalar::kSigmoid, 1},
    {"Sin", Scalar::kSin, 1},   {"Sqrt", Scalar::kSqrt, 1},   {"Sub", Scalar::kSub, 2},
    {"Tanh", Scalar::kTanh, 1}};

// Adds the ONNX nodes that compute a node of an op.
using OnnxLower = void (*)(OnnxLowering&);
// null: the op has none; it is exported as its decomposition, if it has one.
OnnxLower find_onnx_lowering(std::string_view op);

// Those of more than a line, in the files of this folder.
void lower_attention(OnnxLowering& to);
void lower_concat(OnnxLowering& to);
void lower_conv2d(OnnxLowering& to);
void lower_conv_relu_pool(OnnxLowering& to);
void lower_distance_buckets(OnnxLowering& to);
void lower_fill(OnnxLowering& to);
void lower_layer_norm(OnnxLowering& to);
void lower_literal(OnnxLowering& to);
void lower_mask_scores(OnnxLowering& to);
void lower_matmul(OnnxLowering& to);
void lower_max_pool(OnnxLowering& to);
void lower_permute(OnnxLowering& to);
void lower_pointwise(OnnxLowering& to);
void lower_reduce(OnnxLowering& to);
void lower_rope(OnnxLowering& to);
void lower_scale_pixels(OnnxLowering& to);
void lower_split(OnnxLowering& to);

// The element type that a value of the graph has in ONNX.
OnnxElement onnx_element(DType dtype);

// What lowerings of several ops write alike.

// The node x weight^T, with a parameter as weight, that made a value; null: another node did.
const Node* linear_product(const OnnxLowering& to, ValueId value);

// The ONNX value of product + bias, of shape `result`: `product` is one of those nodes.
std::string linear_as_gemm(OnnxLowering& to, const Node& product, ValueId bias, const SymbolicShape& result);

// The ONNX value of rows [B, T, H * D], as a sequence's states are here, as [B, H, T, D]: ONNX's usual form, also of
// keys and values that a decoder keeps. Rows that were made from that form, or joined along T from such, go back to it
// without a detour.
std::string by_heads_in_onnx(OnnxLowering& to, ValueId rows, int64_t heads);

}  // namespace linnet
