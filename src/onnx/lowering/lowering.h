// The ONNX graph that a model becomes, and what an op's lowering gets: a node, its operands' ONNX values, and the graph
// to add nodes to. Integers (i32) are int64 in ONNX; bytes are uint8.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "engine/ir/graph.h"
#include "engine/kernels/pointwise/expression.h"
#include "onnx/file/model.h"

namespace linnet {
// A size that depends on symbols, the sizes a model is traced at: constant + the sum of factor * symbol [* symbol] over
// the terms. Traces have fixed shapes; several of them tell which numbers depend on which symbol.
struct SymbolicSize {
  struct Term {
    int64_t factor;
    std::vector<int> symbols;  // one or two, sorted
    bool operator==(const Term&) const = default;
  };
  int64_t constant = 0;
  std::vector<Term> terms = {};

  bool is_constant() const { return terms.empty(); }
  std::optional<int> as_symbol() const;  // if it is that symbol alone
  int64_t at(std::span<const int64_t> symbols) const;
  std::string text(std::span<const std::string> names) const;  // "past_length + length"
  bool operator==(const SymbolicSize&) const = default;
};

SymbolicSize operator+(SymbolicSize a, const SymbolicSize& b);

using SymbolicShape = std::vector<SymbolicSize>;

// One set of sizes per trace, one number per symbol. The sets must differ in all symbols.
using SizeSets = std::vector<std::vector<int64_t>>;

// The simplest form with values[i] at sets[i] for all i: a constant; constant + factor * symbol; constant + factor *
// symbol * symbol; constant + (once or twice) a symbol, plus or minus another; from four sets on, constant + factor *
// symbol + factor * its square. Empty: none fits.
std::optional<SymbolicSize> fit_size(std::span<const int64_t> values, const SizeSets& sets);

// Builds an ONNX graph. Equal nodes and constants are made once; what no output depends on is left out.
class OnnxBuilder {
 public:
  // `symbols` names sizes known at run time, such as "batch_size".
  OnnxBuilder(int64_t opset, std::vector<std::string> symbols) : opset_(opset), symbols_(std::move(symbols)) {}

  int64_t opset() const { return opset_; }
  const std::vector<std::string>& symbols() const { return symbols_; }

  std::string add(const std::string& op, std::vector<std::string> in, std::vector<OnnxAttribute> attributes = {}) {
    return add_many(op, std::move(in), 1, std::move(attributes))[0];
  }
  std::vector<std::string> add_many(
      const std::string& op, std::vector<std::string> in, size_t results, std::vector<OnnxAttribute> attributes = {});

  // Constants are nodes, as an importer may train initializers.
  std::string tensor(OnnxTensor tensor);
  std::string ints(const std::vector<int64_t>& values);  // int64 [n]
  std::string integer(int64_t value);                    // int64, a scalar
  std::string number(double value);                      // float, a scalar

  // int64 [1], an int64 scalar, and an int64 vector of all sizes.
  std::string size(const SymbolicSize& size);
  std::string size_scalar(const SymbolicSize& size);
  std::string shape(const SymbolicShape& shape);

  std::string reshape(const std::string& x, const SymbolicShape& from, const SymbolicShape& to);
  std::string transpose(const std::string& x, std::vector<int64_t> order);
  // Adds or removes axes of size 1, counted in the result or in x.
  std::string unsqueeze(const std::string& x, std::vector<int64_t> axes) { return add("Unsqueeze", {x, ints(axes)}); }
  // Reduces over axes, which stay with size 1.
  std::string reduce(const std::string& op, const std::string& x, std::vector<int64_t> axes);
  std::string cast(const std::string& x, OnnxElement element);

  // An initializer by its own name, made on writing. A known name is returned again.
  std::string initializer(OnnxTensor tensor);

  void input(std::string name, OnnxElement element, const SymbolicShape& shape);
  void output(std::string name, const std::string& value, OnnxElement element, const SymbolicShape& shape);

  OnnxGraph finish(std::string name);

 private:
  std::string fresh(const std::string& op);
  std::string symbol(int index);
  OnnxValueInfo info(const std::string& name, OnnxElement element, const SymbolicShape& shape) const;

  int64_t opset_;
  std::vector<std::string> symbols_;
  OnnxGraph graph_;
  std::map<std::string, std::vector<std::string>> made_;  // results by node
  std::map<std::string, std::string> constants_;          // names, by type, shape and data
  std::map<std::string, int64_t> counts_;                 // nodes of an operator
  std::set<std::string> initializers_;
  std::map<std::string, SymbolicShape> input_shapes_;
};

// Which equivalent form is written. The defaults suit every runtime; others are for onnxruntime.transformers.optimizer.
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
  // Whether what `of` gives of the node is another value at other sizes.
  template <class Of> bool differs(const Of& of) const {
    return std::ranges::any_of(
        traces_, [&](const Graph& trace) { return std::invoke(of, trace.node(current_)) != std::invoke(of, node()); });
  }

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
// Those of attention.cpp.
void lower_attention(OnnxLowering& to);
void lower_distance_buckets(OnnxLowering& to);
void lower_mask_scores(OnnxLowering& to);
void lower_permute(OnnxLowering& to);
void lower_rope(OnnxLowering& to);

OnnxElement onnx_element(DType dtype);
}  // namespace linnet
