// Runs a graph node by node, each value in its own memory: for inspection and tests. The executor gives the same bits.
#pragma once
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>
#include "engine/ir/graph.h"
#include "engine/ir/tensor_type.h"
#include "engine/ops/kernel.h"

namespace linnet {
// A tensor that owns its memory.

class HostTensor {
 public:
  HostTensor() = default;
  explicit HostTensor(TensorType type) : type_(type), words_(type.bytes() / 8 + 8) {}  // zeroed
  template <class T> HostTensor(TensorType type, std::span<const T> values) : HostTensor(type) {
    // The pointer of an empty span may be null, which memcpy does not accept.
    if (!values.empty()) std::memcpy(data(), values.data(), type.bytes());
  }

  const TensorType& type() const { return type_; }
  void* data() { return words_.data(); }
  const void* data() const { return words_.data(); }
  template <class T> std::span<T> as() {
    return {static_cast<T*>(data()), static_cast<size_t>(type_.shape.elements())};
  }
  template <class T> std::span<const T> as() const {
    return {static_cast<const T*>(data()), static_cast<size_t>(type_.shape.elements())};
  }
  double operator[](int64_t i) const;  // element i, whatever the type
  std::vector<double> values() const;

 private:
  TensorType type_;
  std::vector<double> words_;
};

HostTensor dense_copy(const TensorView& view);  // the elements in row-major order, whatever the view's strides

using NamedTensors = std::map<std::string, HostTensor>;

struct InterpreterOptions {
  KernelSet kernels = KernelSet::kReference;
  int threads = 1;
  // Called after each node with its outputs; copy them with dense_copy() to keep them.
  std::function<void(NodeId, std::span<const TensorView>)> after_node = {};
};

struct InterpreterResult {
  NamedTensors outputs;
  NamedTensors states;  // the new values of updated inputs, by the input's name
};

// Throws Error(kUser) if an input is missing or of another type.
InterpreterResult interpret(const Graph& graph, const NamedTensors& inputs, const InterpreterOptions& options = {});

// Finds the first node whose output holds a NaN or an infinity although its float inputs hold none: "file:line: op (in
// module) of f32[8, 16] from -1.2 to 3.4, ...", with the operands' ranges; empty if there is none. Ignores masks.
std::string first_non_finite(const Graph& graph, const NamedTensors& inputs, const InterpreterOptions& options = {});
}  // namespace linnet
