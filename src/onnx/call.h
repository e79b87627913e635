// What the implementation of an ONNX operator sees: one node with its operands, and the graph of ours it adds to.
// Operators are composed of ops that exist; gradients, fusion and memory planning follow from those.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include "base/fail.h"
#include "engine/exec/interpreter.h"
#include "engine/ir/graph.h"
#include "onnx/file/model.h"

namespace linnet {

// A value of an ONNX graph while it becomes a graph of ours.
//
// Floats of 32 bits and fewer are computed as f32, doubles as f64, truth values as 0 and 1 in f32, whole numbers as
// f64: exact up to 2^53. Whole numbers that are inputs of the graph (token ids) are i32.

struct TracedQuantization;

struct TracedValue {
  OnnxElement element = OnnxElement::kFloat;
  // At least one of the two. `known`: the elements are known while tracing, so what depends on them alone is computed
  // then and there.
  Tensor tensor = {};
  std::shared_ptr<const HostTensor> known = {};
  const OnnxTensor* initial = nullptr;                          // of a parameter: its values in the file
  std::shared_ptr<const TracedQuantization> quantization = {};  // null: none that is known

  Shape shape() const { return tensor.defined() ? tensor.shape() : known->type().shape; }
};

// How a value came from whole numbers of 8 bits, or became them: value = (code - zero) * scale. Of QuantizeLinear's
// result and of DequantizeLinear's.
struct TracedQuantization {
  OnnxElement element = OnnxElement::kInt8;     // of the codes
  std::vector<double> scales = {}, zeros = {};  // one, or one for each index of `axis`
  int axis = 0;
  // The floats that were rounded. Undefined: they are not known to be what the codes came from.
  Tensor before = {};
  std::shared_ptr<const HostTensor> codes = {};  // where they are known
};

DType traced_dtype(OnnxElement element);
bool is_whole(OnnxElement element);   // an integer, not a truth value
bool is_signed(OnnxElement element);  // an integer with a sign
bool is_float(OnnxElement element);

// A tensor of a file as numbers in traced_dtype(). User error for strings and types there is no arithmetic of.
HostTensor read_host_tensor(const OnnxTensor& tensor);

// Known values.
TracedValue known_numbers(OnnxElement element, const Shape& shape, const std::vector<double>& values);
TracedValue known_vector(const std::vector<int64_t>& values);  // int64 [n]

class OnnxCall {
 public:
  OnnxCall(const OnnxNode& node, int64_t opset, Graph& graph, std::vector<TracedValue> in)
      : node_(node), opset_(opset), graph_(graph), in_(std::move(in)), out_(node.out.size()) {}

  Graph& graph() { return graph_; }
  int64_t opset() const { return opset_; }  // of the node's domain
  const OnnxNode& node() const { return node_; }

  // Operands. Those that are left out have no value.
  size_t operands() const { return in_.size(); }
  bool has(size_t i) const { return i < in_.size() && (in_[i].tensor.defined() || in_[i].known); }
  const TracedValue& in(size_t i) const;
  void replace(size_t i, Tensor tensor) { in_.at(i) = {.tensor = tensor}; }  // an operand by another form of it
  OnnxElement element(size_t i = 0) const { return in(i).element; }
  Shape shape(size_t i = 0) const { return in(i).shape(); }
  Tensor tensor(size_t i = 0);  // in traced_dtype()
  Tensor tensor(size_t i, DType dtype);
  // Operands that must be known while tracing: shapes, axes, indices.
  std::vector<int64_t> ints(size_t i) const;
  std::vector<double> numbers(size_t i) const;
  double number(size_t i, double otherwise) const;  // of one element; `otherwise` when left out
  bool is_known(size_t i) const { return has(i) && in(i).known != nullptr; }

  // Attributes.
  bool has_attribute(const char* name) const { return find(name) != nullptr; }
  int64_t integer(const char* name, int64_t otherwise) const;
  bool flag(const char* name, bool otherwise = false) const { return integer(name, otherwise) != 0; }
  double real(const char* name, double otherwise) const;
  std::string text(const char* name, const std::string& otherwise) const;
  std::vector<int64_t> list(const char* name, const std::vector<int64_t>& otherwise = {}) const;
  std::vector<float> reals(const char* name) const;
  std::vector<std::string> texts(const char* name) const;
  const OnnxTensor* tensor_attribute(const char* name) const;
  // `axis` from the beginning. User error outside of [-rank, rank).
  int axis(int64_t axis, int rank) const;
  // The attribute "axis", of operand 0.
  int axis_of(int64_t otherwise) const { return axis(integer("axis", otherwise), shape().rank()); }
  // An operand, or in older opsets an attribute, of whole numbers.
  std::vector<int64_t> ints_or_list(size_t operand, const char* name,
                                    const std::vector<int64_t>& otherwise = {}) const {
    return has(operand) ? ints(operand) : list(name, otherwise);
  }

  // Results.
  size_t results() const { return out_.size(); }
  bool is_wanted(size_t i) const { return i < node_.out.size() && !node_.out[i].empty(); }
  void set(size_t i, Tensor tensor, OnnxElement element);
  void set(Tensor tensor) { set(0, tensor, element()); }
  void set(size_t i, TracedValue value) { out_[i] = std::move(value); }
  void set_quantization(TracedQuantization quantization) {
    out_[0].quantization = std::make_shared<TracedQuantization>(std::move(quantization));
  }
  const std::vector<TracedValue>& out() const { return out_; }

  // Tensors of the graph.
  Tensor constant(const TracedValue& value);
  Tensor values(const Shape& shape, const std::vector<double>& values, DType dtype);
  Tensor locations(int64_t count, DType dtype);  // [count]: 0, 1, 2, ...
  Tensor uniform(double value, const Shape& shape, DType dtype);
  Tensor number(double value, DType dtype) { return uniform(value, {}, dtype); }

  // User error where the node has an attribute that its operator did not ask for: it would be left out in silence.
  void check_attributes() const;
  // A user error that names the operator and the node.
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_user(node_.op, node_.name.empty() ? "" : " \"" + node_.name + "\"", ": ", parts...);
  }

 private:
  const OnnxAttribute* find(const char* name) const;

  const OnnxNode& node_;
  mutable std::set<std::string> asked_;  // names of attributes
  int64_t opset_;
  Graph& graph_;
  std::vector<TracedValue> in_, out_;
};

using OnnxOperator = std::function<void(OnnxCall& call)>;

struct OnnxOperatorRow {
  const char* name;
  OnnxOperator run;       // null: of nodes that have graphs within, which OnnxNetwork traces (control_flow.cpp)
  const char* note = "";  // what of it is not there
  std::vector<size_t> fixed = {};  // operands that shape the computation: they are never trained
};

// The operators that there are, by name, those of other domains than ONNX's own with theirs in front.
const std::vector<OnnxOperatorRow>& onnx_operators();
const OnnxOperatorRow* find_onnx_operator(const std::string& name);  // null: there is none

}  // namespace linnet
