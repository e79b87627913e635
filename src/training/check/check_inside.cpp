// Inside the graph: what attention does with values that are all one, and units that never fire.
#include <algorithm>
#include <cmath>
#include <map>

#include "training/check/checks.h"
#include "engine/ir/op.h"
#include "engine/ops/attention/attention.h"

namespace linnet {
namespace {

HostTensor dense_copy(const TensorView& view) {
  HostTensor copy(view.type);
  const Shape& shape = view.type.shape;
  std::vector<int64_t> at(static_cast<size_t>(shape.rank()));
  const size_t size = dtype_size(view.type.dtype);
  for (int64_t i = 0, count = shape.elements(); i < count; ++i) {
    int64_t offset = 0, rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      offset += rest % shape[axis] * view.strides[axis];
      rest /= shape[axis];
    }
    std::memcpy(static_cast<std::byte*>(copy.data()) + static_cast<size_t>(i) * size,
                static_cast<const std::byte*>(view.data) + static_cast<size_t>(offset) * size, size);
  }
  return copy;
}

// The farthest that any attention of a row of ones is from 1, or, where a query sees no key, from 0.
double attention_of_ones(const Node& node, std::vector<HostTensor> operands) {
  std::ranges::fill(operands[2].as<float>(), 1.0F);
  Graph graph;
  NamedTensors inputs;
  std::vector<Tensor> in;
  for (size_t i = 0; i < operands.size(); ++i) {
    in.push_back(graph.input("in" + std::to_string(i), operands[i].type()));
    inputs["in" + std::to_string(i)] = std::move(operands[i]);
  }
  graph.output("out", graph.add(*node.op, in, node.attrs, node.where)[0]);
  const HostTensor out = interpret(graph, inputs).outputs.at("out");
  double worst = 0;
  for (const float value : out.as<float>()) {
    const double off = value == 0 ? 0 : std::abs(value - 1.0);
    worst = std::isfinite(value) ? std::max(worst, off) : INFINITY;
  }
  return worst;
}

}  // namespace

CheckLine check_attention(CheckSubject& subject) {
  constexpr const char* kName = "attention rows sum to one";
  const Graph& graph = evaluation_graph(subject);
  restart(subject);
  load(subject, subject.batch);
  // Operands of attention nodes as they are computed.
  std::map<ValueId, HostTensor> kept;
  const auto is_attention = [](const Node& node) { return node.op == &kAttention; };
  for (const Node& node : graph.nodes())
    if (is_attention(node))
      for (const ValueId value : node.in) kept[value];
  if (kept.empty()) return skipped(kName, "the model has no attention");
  const NamedTensors inputs = graph_inputs(subject, graph);
  for (const GraphInput& input : graph.inputs())
    if (kept.contains(input.value)) kept[input.value] = inputs.at(input.name);
  InterpreterOptions options{.kernels = KernelSet::kFast, .threads = subject.trainer.options().threads};
  options.after_node = [&](NodeId id, std::span<const TensorView> out) {
    for (size_t i = 0; i < out.size(); ++i)
      if (const auto found = kept.find(graph.node(id).out[i]); found != kept.end()) found->second = dense_copy(out[i]);
  };
  interpret(graph, inputs, options);
  double worst = 0;
  int64_t nodes = 0;
  std::string where;
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    if (!is_attention(node)) continue;
    std::vector<HostTensor> operands;
    for (const ValueId value : node.in) operands.push_back(kept.at(value));
    const double off = attention_of_ones(node, std::move(operands));
    if (++nodes == 1 || off > worst) worst = off, where = graph.where_text(id);
  }
  return verdict(
      kName, worst < 1e-4,
      text_of("%lld attentions; farthest off by %.1e (%s)", static_cast<long long>(nodes), worst, where.c_str()));
}

CheckLine check_dead_units(CheckSubject& subject) {
  constexpr const char* kName = "dead units";
  constexpr double kMostShare = 0.5;
  const Graph& graph = evaluation_graph(subject);
  restart(subject);
  load(subject, subject.batch);
  double worst = -1;
  int64_t layers = 0;
  std::string where;
  InterpreterOptions options{.kernels = KernelSet::kFast, .threads = subject.trainer.options().threads};
  options.after_node = [&](NodeId id, std::span<const TensorView> out) {
    const Node& node = graph.node(id);
    if (label_of(node).find("relu") == std::string::npos && node.attrs.text().find("relu") == std::string::npos) return;
    const Shape& shape = out[0].type.shape;
    if (shape.rank() < 2 || out[0].type.dtype != DType::kF32 || out[0].strides != dense_strides(shape)) return;
    const int64_t units = shape[-1], rows = shape.elements() / std::max<int64_t>(units, 1);
    int64_t dead = 0;
    for (int64_t unit = 0; unit < units; ++unit) {
      bool fires = false;
      for (int64_t row = 0; row < rows && !fires; ++row) fires = out[0].as<float>()[row * units + unit] > 0;
      dead += !fires;
    }
    const double share = static_cast<double>(dead) / static_cast<double>(std::max<int64_t>(units, 1));
    ++layers;
    if (share > worst) worst = share, where = graph.where_text(id);
  };
  interpret(graph, graph_inputs(subject, graph), options);
  if (layers == 0) return skipped(kName, "no units that can be off for good (relu)");
  return verdict(kName, worst < kMostShare,
                 text_of("%lld layers with relu; at most %.1f%% never fire on this batch (%s)",
                         static_cast<long long>(layers), 100 * worst, where.c_str()));
}

}  // namespace linnet
