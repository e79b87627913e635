// An ONNX operator's implementation composes existing ops, from which gradients, fusion and memory planning follow.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>
#include "base/fail.h"
#include "engine/exec/interpreter.h"
#include "engine/ir/graph.h"
#include "onnx/file/model.h"

namespace linnet {
// A value of an ONNX graph during its conversion. Floats of up to 32 bits are computed as f32, doubles as f64, truth
// values as 0 and 1 in f32, whole numbers as f64 (exact up to 2^53), but i32 as inputs of the graph (token ids).

class SavedBuffer;  // models/nn/module.h
struct TracedQuantization;

struct TracedValue {
  OnnxElement element = OnnxElement::kFloat;
  // At least one of the two. Elements that are `known` while tracing let what depends on them alone be computed then.
  Tensor tensor = {};
  std::shared_ptr<const HostTensor> known = {};
  const OnnxTensor* initial = nullptr;                          // of a parameter: its values in the file
  const SavedBuffer* buffer = nullptr;                          // of a statistic that training updates
  std::shared_ptr<const TracedQuantization> quantization = {};  // null: none known

  Shape shape() const { return tensor.defined() ? tensor.shape() : known->type().shape; }
};

// How a value came from 8-bit codes (DequantizeLinear) or became them (QuantizeLinear): (code - zero) * scale.
struct TracedQuantization {
  OnnxElement element = OnnxElement::kInt8;     // of the codes
  std::vector<double> scales = {}, zeros = {};  // one, or one for each index of `axis`
  int axis = 0;
  Tensor before = {};                            // the floats that were rounded; undefined: not known
  std::shared_ptr<const HostTensor> codes = {};  // if known
};

DType traced_dtype(OnnxElement element);
bool is_whole(OnnxElement element);   // an integer, not a truth value
bool is_signed(OnnxElement element);  // an integer with a sign
bool is_float(OnnxElement element);

// A file's tensor in traced_dtype(). User error for strings and unsupported types.
HostTensor read_host_tensor(const OnnxTensor& tensor);

TracedValue known_numbers(OnnxElement element, const Shape& shape, const std::vector<double>& values);
TracedValue known_whole(int64_t value);                        // int64 []
TracedValue known_vector(const std::vector<int64_t>& values);  // int64 [n]

class OnnxCall {
 public:
  OnnxCall(const OnnxNode& node, int64_t opset, Graph& graph, std::vector<TracedValue> in)
      : node_(node), opset_(opset), graph_(graph), in_(std::move(in)), out_(node.out.size()) {}

  Graph& graph() { return graph_; }
  int64_t opset() const { return opset_; }  // of the node's domain
  const OnnxNode& node() const { return node_; }

  // Operands. Omitted ones have no value.
  size_t operands() const { return in_.size(); }
  bool has(size_t i) const { return i < in_.size() && (in_[i].tensor.defined() || in_[i].known); }
  const TracedValue& in(size_t i) const;
  void replace(size_t i, Tensor tensor) { in_.at(i) = {.tensor = tensor}; }  // an operand in another form
  OnnxElement element(size_t i = 0) const { return in(i).element; }
  Shape shape(size_t i = 0) const { return in(i).shape(); }
  Tensor tensor(size_t i = 0);  // in traced_dtype()
  Tensor tensor(size_t i, DType dtype);
  // Operands that must be known while tracing: shapes, axes, indices.
  std::vector<int64_t> ints(size_t i) const;
  std::vector<double> numbers(size_t i) const;
  double number(size_t i, double otherwise) const;  // of one element; `otherwise` if omitted
  bool is_known(size_t i) const { return has(i) && in(i).known != nullptr; }

  bool has_attribute(const char* name) const { return find(name) != nullptr; }
  int64_t integer(const char* name, int64_t otherwise) const;
  bool flag(const char* name, bool otherwise = false) const { return integer(name, otherwise) != 0; }
  double real(const char* name, double otherwise) const;
  std::string text(const char* name, const std::string& otherwise) const;
  std::vector<int64_t> list(const char* name, const std::vector<int64_t>& otherwise = {}) const;
  std::vector<float> reals(const char* name) const;
  std::vector<std::string> texts(const char* name) const;
  const OnnxTensor* tensor_attribute(const char* name) const;
  // `axis` counted from the beginning. User error outside of [-rank, rank).
  int axis(int64_t axis, int rank) const;
  // The attribute "axis", of operand 0.
  int axis_of(int64_t otherwise) const { return axis(integer("axis", otherwise), shape().rank()); }
  // An operand of whole numbers, or in older opsets an attribute.
  std::vector<int64_t> ints_or_list(
      size_t operand, const char* name, const std::vector<int64_t>& otherwise = {}) const {
    return has(operand) ? ints(operand) : list(name, otherwise);
  }

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

  // User error for an attribute that the operator did not read, which would be ignored silently.
  void check_attributes() const;
  // A user error that names the operator and the node.
  template <class... Parts> [[noreturn]] void fail(const Parts&... parts) const {
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
  OnnxOperator run;                // null: nodes with graphs within, which OnnxNetwork traces (control_flow.cpp)
  const char* note = "";           // what is not supported
  std::vector<size_t> fixed = {};  // operands that shape the computation and are never trained
};

// All operators by name, with their domain in front unless it is ONNX's own.
const std::vector<OnnxOperatorRow>& onnx_operators();
const OnnxOperatorRow* find_onnx_operator(const std::string& name);  // null: none
}  // namespace linnet
