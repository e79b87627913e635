#include <algorithm>
#include <cmath>
#include <optional>
#include "models/nn/initializer.h"
#include "onnx/network.h"

namespace linnet {
namespace {
struct Head {
  size_t weight, bias;  // of graph.initializers; kAbsent: there is none
  bool by_rows;         // [classes, features], as Gemm with transB has it; else [features, classes]
};
constexpr size_t kAbsent = SIZE_MAX;

const OnnxNode* producer(const OnnxGraph& graph, const std::string& value) {
  const auto found =
      std::ranges::find_if(graph.nodes, [&](const OnnxNode& node) { return std::ranges::count(node.out, value) > 0; });
  return found == graph.nodes.end() ? nullptr : &*found;
}

// The float initializer with this name that only one node reads.
size_t own_initializer(const OnnxGraph& graph, const std::string& name) {
  int64_t readers = 0;
  for (const OnnxNode& node : graph.nodes) readers += std::ranges::count(node.in, name);
  const auto found = std::ranges::find(graph.initializers, name, &OnnxTensor::name);
  if (readers != 1 || found == graph.initializers.end() || found->element != OnnxElement::kFloat) return kAbsent;
  return static_cast<size_t>(found - graph.initializers.begin());
}

std::optional<Head> find_head(const OnnxModel& model) {
  const OnnxGraph& graph = model.graph;
  if (graph.outputs.size() != 1) return {};
  const OnnxNode* node = producer(graph, graph.outputs[0].name);
  Head head{kAbsent, kAbsent, false};
  if (node && node->op == "Add" && node->in.size() == 2) {
    const bool swapped = own_initializer(graph, node->in[0]) != kAbsent;
    head.bias = own_initializer(graph, node->in[swapped ? 0 : 1]);
    if (head.bias == kAbsent) return {};
    node = producer(graph, node->in[swapped ? 1 : 0]);
    if (node && node->op != "MatMul") return {};
  }
  if (!node || (node->op != "Gemm" && node->op != "MatMul") || node->in.size() < 2) return {};
  head.weight = own_initializer(graph, node->in[1]);
  if (head.weight == kAbsent || graph.initializers[head.weight].dims.size() != 2) return {};
  if (node->op == "Gemm") {
    const OnnxAttribute* transposed = node->find("transB");
    head.by_rows = transposed && transposed->i != 0;
    if (node->in.size() > 2 && !node->in[2].empty() && (head.bias = own_initializer(graph, node->in[2])) == kAbsent)
      return {};
  }
  return head;
}
}  // namespace

int64_t head_classes(const OnnxModel& model) {
  const std::optional<Head> head = find_head(model);
  return head ? model.graph.initializers[head->weight].dims[head->by_rows ? 0 : 1] : 0;
}

void replace_head(OnnxModel& model, int64_t classes) {
  const std::optional<Head> head = find_head(model);
  if (!head || head_classes(model) == classes) return;
  OnnxTensor& weight = model.graph.initializers[head->weight];
  const int64_t features = weight.dims[head->by_rows ? 1 : 0];
  const Shape shape = head->by_rows ? Shape{classes, features} : Shape{features, classes};
  std::vector<float> values(shape.elements());
  initialize(uniform_init(1 / std::sqrt(static_cast<double>(features))), weight.name, 1, shape, values);
  weight = float_tensor({shape[0], shape[1]}, values, weight.name);
  if (head->bias != kAbsent) {
    OnnxTensor& bias = model.graph.initializers[head->bias];
    bias = float_tensor({classes}, std::vector<float>(classes), bias.name);
  }
  if (OnnxValueInfo& output = model.graph.outputs[0]; !output.dims.empty()) output.dims.back() = {classes, ""};
}
}  // namespace linnet
