// What an op's lowering to ONNX gets: a node, its operands' ONNX values, and the graph to add nodes to. Integers (i32)
// are int64 in ONNX; bytes are uint8.
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
// Which equivalent form is written. The defaults suit every runtime; others are for ONNX Runtime's transformer
// optimizer (onnxruntime.transformers.optimizer).
struct OnnxForm {
  // Separate products for queries, keys and values instead of a split one (for FusionAttention).
  bool separate_projections = false;
  // > 0: the most keys; masks are cut from a constant, and a Gemm follows attention (for FusionGptAttention).
  int64_t causal_mask_size = 0;
};

// A parameter's values, for initializers.
struct OnnxParameter {
  std::string name;
  Shape shape;
  const float* values;
  std::shared_ptr<const void> owner = {};  // keeps `values` alive; null: the caller
};

class OnnxLowering {
 public:
  // Traces of one model, one per set of sizes; they must be alike but for sizes.
  OnnxLowering(OnnxBuilder& builder, std::span<const Graph> traces, const SizeSets& sets, const OnnxForm& form = {});

  // Declares an input of the graphs: an ONNX input, a parameter, or lengths that come as a mask.
  void bind_input(ValueId value);
  void bind_parameter(ValueId value, const OnnxParameter& parameter);
  // `mask` int64 [B, keys]: 1 for valid keys. Its sums are the lengths i32 [B].
  void bind_key_mask(ValueId lengths, const std::string& mask);
  // Lowers every node in order. User error naming an op that ONNX cannot express.
  void run();
  const std::string& value(ValueId id) const { return names_.at(id); }

  // --- For lowerings ---
  OnnxBuilder& builder;
  const OnnxForm form;
  const Graph& graph() const { return traces_[0]; }
  const Node& node() const { return graph().node(current_); }
  template <class Attrs> const Attrs& attrs() const { return node().attrs.as<Attrs>(); }
  size_t operands() const { return node().in.size(); }

  const std::string& in(size_t operand) const { return names_.at(node().in[operand]); }
  const SymbolicShape& in_shape(size_t operand) const { return shape_of(node().in[operand]); }
  const SymbolicShape& out_shape(size_t result);
  TensorType in_type(size_t operand) const { return graph().value(node().in[operand]).type; }
  TensorType out_type(size_t result) const { return graph().value(node().out[result]).type; }
  void set(size_t result, std::string name) { names_[node().out[result]] = std::move(name); }
  // Adds a node for the node's first result.
  void add(const std::string& op, std::vector<std::string> in, std::vector<OnnxAttribute> attributes = {}) {
    set(0, builder.add(op, std::move(in), std::move(attributes)));
  }
  bool is_used(size_t result) const { return uses_[node().out[result]] > 0; }

  // A number of the node's attributes that may depend on the sizes.
  SymbolicSize fit(const std::function<int64_t(const Node&)>& number);

  // The operand with axes reordered: output axis i is axis order[i]. A parameter with one reader is stored so.
  std::string arranged(size_t operand, const std::vector<int64_t>& order) {
    return arranged_value(node().in[operand], order);
  }
  std::string arranged_value(ValueId id, const std::vector<int64_t>& order);
  // Rows [first, first + count) of a parameter as an initializer, with axes reordered. `part` numbers them in its name.
  std::string parameter_rows(ValueId id, int part, int64_t first, int64_t count, const std::vector<int64_t>& order);
  bool is_parameter(ValueId id) const { return parameters_.contains(id); }
  // float [B, 1, 1, keys]: 0 for valid keys, else the lowest number. `operand` is lengths i32 [B].
  std::string key_mask(size_t operand, const SymbolicSize& keys);
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
  bool sizes_read_ = false;  // the current node's lowering read sizes
};

// ONNX operators that are one function of each element. The importer uses this table for those of one operand; ONNX's
// others also take whole numbers or more operands.
struct OnnxFunctionRow {
  const char* name;
  Scalar function;
  int operands;
};
inline constexpr OnnxFunctionRow kOnnxFunctions[] = {{"Abs", Scalar::kAbs, 1}, {"Add", Scalar::kAdd, 2},
    {"Atan", Scalar::kAtan, 1}, {"Cos", Scalar::kCos, 1}, {"Div", Scalar::kDiv, 2}, {"Erf", Scalar::kErf, 1},
    {"Exp", Scalar::kExp, 1}, {"Floor", Scalar::kFloor, 1}, {"Log", Scalar::kLog, 1}, {"Max", Scalar::kMax, 2},
    {"Min", Scalar::kMin, 2}, {"Mul", Scalar::kMul, 2}, {"Neg", Scalar::kNeg, 1}, {"Pow", Scalar::kPow, 2},
    {"Reciprocal", Scalar::kReciprocal, 1}, {"Relu", Scalar::kRelu, 1}, {"Round", Scalar::kRound, 1},
    {"Sigmoid", Scalar::kSigmoid, 1}, {"Sin", Scalar::kSin, 1}, {"Sqrt", Scalar::kSqrt, 1}, {"Sub", Scalar::kSub, 2},
    {"Tanh", Scalar::kTanh, 1}};

using OnnxLower = void (*)(OnnxLowering&);
// Null: none; the op is exported as its decomposition, if it has one.
OnnxLower find_onnx_lowering(std::string_view op);

// Lowerings of more than a line, in the files of this folder.
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

OnnxElement onnx_element(DType dtype);

// The node x weight^T, with a parameter as weight, that made a value; null: another node did.
const Node* linear_product(const OnnxLowering& to, ValueId value);

// product + bias, of shape `result`; `product` is such a node.
std::string linear_as_gemm(OnnxLowering& to, const Node& product, ValueId bias, const SymbolicShape& result);

// Rows [B, T, H * D] as [B, H, T, D], ONNX's usual form, also of a decoder's keys and values. Rows that were made from
// that form, or joined along T from such, are taken back directly.
std::string by_heads_in_onnx(OnnxLowering& to, ValueId rows, int64_t heads);
}  // namespace linnet
