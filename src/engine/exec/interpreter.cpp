#include "engine/exec/interpreter.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include "base/fail.h"
#include "base/text.h"
#include "engine/device/device.h"
#include "engine/ir/op.h"

namespace linnet {
namespace {
class Interpreter {
 public:
  Interpreter(const Graph& graph, const NamedTensors& inputs, const InterpreterOptions& options)
      : graph_(graph), options_(options), pool_(options.threads) {
    for (ValueId id = 0; id < graph.value_count(); ++id)
      if (root_of(graph, id).value == id) memory_.try_emplace(id, graph.value(id).type);
    for (const GraphInput& input : graph.inputs()) {
      const auto found = inputs.find(input.name);
      if (found == inputs.end()) fail_user("the graph's input ", input.name, " was not given");
      if (found->second.type() != graph.value(input.value).type)
        fail_user("the graph's input ", input.name, " is ", found->second.type().text(), ", expected ",
            graph.value(input.value).type.text());
      memory_[input.value] = found->second;
    }
  }

  void run() {
    for (NodeId id = 0; id < graph_.node_count(); ++id) run_node(id);
  }

  InterpreterResult result() {
    InterpreterResult result;
    for (const GraphOutput& output : graph_.outputs()) result.outputs[output.name] = dense(output.value);
    for (const GraphInput& input : graph_.inputs())
      if (const auto* update = find_item(graph_.updates(), input.value, &StateUpdate::state))
        result.states[input.name] = dense(update->value);
    return result;
  }

  TensorView view(ValueId id) {
    const Root root = root_of(graph_, id);
    auto* data = static_cast<std::byte*>(memory_.at(root.value).data());
    return {data + static_cast<size_t>(root.offset) * dtype_size(graph_.value(id).type.dtype), graph_.value(id).type,
        root.strides};
  }

 private:
  void run_node(NodeId id) {
    const Node& node = graph_.node(id);
    const auto view_of = [&](ValueId value) { return view(value); };
    const std::vector<TensorView> in = mapped(node.in, view_of), out = mapped(node.out, view_of);
    const NodeTypes types = types_of(graph_, node);
    const KernelQuery query{node, types.in, types.out, options_.threads, cpu_backend().device};
    const Kernel& kernel = find_kernel(query, options_.kernels, cpu_backend());
    Buffer workspace(kernel.workspace ? kernel.workspace(query) : 0);
    kernel.run({node, in, out, workspace.data(), pool_, cpu_backend().device});
    if (options_.after_node) options_.after_node(id, out);
  }

  HostTensor dense(ValueId id) {
    const TensorView from = view(id);
    if (from.strides != dense_strides(from.type.shape)) fail_internal("an output of the graph is a strided view");
    return dense_copy(from);
  }

  const Graph& graph_;
  const InterpreterOptions& options_;
  ThreadPool pool_;
  std::map<ValueId, HostTensor> memory_;
};

bool all_finite(const TensorView& x) {
  if (!is_float(x.type.dtype) || x.strides != dense_strides(x.type.shape)) return true;  // parts show in their whole
  bool finite = true;
  for_float(x.type.dtype, [&]<class T>() {
    for (const T value : x.numbers<T>())
      finite = finite && (std::isfinite(value) || value == -std::numeric_limits<T>::infinity());
  });
  return finite;
}

// "f32[8, 16] from -1.2 to 3.4".
std::string range_text(const TensorView& x) {
  std::string text = x.type.text();
  if (!is_float(x.type.dtype) || x.type.dtype == DType::kBF16 || x.elements() == 0) return text;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const double value : dense_copy(x).values()) least = std::min(least, value), most = std::max(most, value);
  return text + printed(" from %.3g to %.3g", least, most);
}
}  // namespace

HostTensor dense_copy(const TensorView& view) {
  HostTensor copy(view.type);
  const Shape& shape = view.type.shape;
  const size_t size = dtype_size(view.type.dtype);
  const auto* from = static_cast<const std::byte*>(view.data);
  auto* to = static_cast<std::byte*>(copy.data());
  if (view.strides == dense_strides(shape)) {
    std::copy_n(from, view.type.bytes(), to);  // null where there are none
    return copy;
  }
  for (int64_t i = 0, count = shape.elements(); i < count; ++i, to += size) {
    int64_t offset = 0, rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; rest /= shape[axis--])
      offset += rest % shape[axis] * view.strides[axis];
    std::memcpy(to, from + static_cast<size_t>(offset) * size, size);
  }
  return copy;
}

InterpreterResult interpret(const Graph& graph, const NamedTensors& inputs, const InterpreterOptions& options) {
  Interpreter interpreter(graph, inputs, options);
  interpreter.run();
  return interpreter.result();
}

std::string first_non_finite(const Graph& graph, const NamedTensors& inputs, const InterpreterOptions& options) {
  for (const auto& [name, tensor] : inputs) {
    HostTensor copy = tensor;
    if (!all_finite({copy.data(), copy.type(), dense_strides(copy.type().shape)})) return "input " + name;
  }
  std::string found;
  Interpreter* running = nullptr;
  InterpreterOptions watching = options;
  watching.after_node = [&](NodeId id, std::span<const TensorView> out) {
    if (!found.empty() || std::ranges::all_of(out, all_finite)) return;
    const auto range_of = [&](ValueId operand) { return range_text(running->view(operand)); };
    const std::string operands = joined(graph.node(id).in, ", ", range_of);
    found = graph.where_text(id) + (operands.empty() ? "" : " of ") + operands;
  };
  Interpreter interpreter(graph, inputs, watching);
  running = &interpreter;
  interpreter.run();
  return found;
}

double HostTensor::operator[](int64_t i) const {
  switch (type_.dtype) {
    case DType::kF32: return as<float>()[i];
    case DType::kF64: return as<double>()[i];
    case DType::kI32: return as<int32_t>()[i];
    case DType::kU8: return as<uint8_t>()[i];
    case DType::kBF16: return std::bit_cast<float>(static_cast<uint32_t>(as<uint16_t>()[i]) << 16);
  }
  return 0;
}

std::vector<double> HostTensor::values() const {
  return mapped(type_.shape.elements(), [&](int64_t i) { return (*this)[i]; });
}
}  // namespace linnet
