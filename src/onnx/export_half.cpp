#include "onnx/export_half.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace linnet {
namespace {

constexpr float kMostHalf = 65504;

void to_half(std::vector<float>& values, std::byte* out) {
  for (float& value : values)  // masks add the lowest number
    if (std::isfinite(value)) value = std::clamp(value, -kMostHalf, kMostHalf);
  write_floats(FileDType::kF16, values.data(), static_cast<int64_t>(values.size()), out);
}

OnnxTensor weight_in_half(const OnnxTensor& tensor) {
  OnnxTensor result{.name = tensor.name, .element = OnnxElement::kFloat16, .dims = tensor.dims};
  result.fill = [tensor](int64_t first, int64_t count, std::byte* out) {
    std::vector<float> values;
    read_piece(tensor, first, count, values);
    to_half(values, out);
  };
  return result;
}

OnnxTensor constant_in_half(const OnnxTensor& tensor) {
  auto data = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(tensor.elements()) * 2);
  weight_in_half(tensor).fill(0, tensor.elements(), data->data());
  OnnxTensor result{.name = tensor.name, .element = OnnxElement::kFloat16, .dims = tensor.dims};
  result.data = *data, result.owner = data;
  return result;
}

OnnxNode cast_node(const std::string& from, const std::string& to, OnnxElement element) {
  return {.name = to,
          .op = "Cast",
          .in = {from},
          .out = {to},
          .attributes = {int_attribute("to", static_cast<int64_t>(element))}};
}

void rename(OnnxGraph& graph, const std::string& from, const std::string& to) {
  for (OnnxNode& node : graph.nodes) {
    for (auto* names : {&node.in, &node.out}) std::ranges::replace(*names, from, to);
    for (OnnxAttribute& attribute : node.attributes)
      if (attribute.graph) rename(*attribute.graph, from, to);
  }
}

// Rewrites the nodes of one graph.
class HalfNodes {
 public:
  // `floats`: the float values of the graphs around it, which are of 16 bits.
  explicit HalfNodes(std::set<std::string> floats) : floats_(std::move(floats)) {}

  void rewrite(OnnxGraph& graph) {
    for (OnnxNode& node : graph.nodes) rewrite_node(node);
    graph.nodes = std::move(nodes_);
  }
  // Of a branch: its outputs are those of the node around it.
  void rewrite_branch(OnnxGraph& graph) {
    rewrite(graph);
    for (OnnxValueInfo& output : graph.outputs)
      if (output.element == OnnxElement::kFloat) output.element = OnnxElement::kFloat16;
  }

 private:
  bool gives_floats(const OnnxNode& node) const {
    static const std::set<std::string> whole{"Shape",   "ArgMax",         "Equal", "Less", "LessOrEqual",
                                             "Greater", "GreaterOrEqual", "And",   "Not"};
    if (whole.contains(node.op)) return false;
    if (node.op == "Cast") return node.find("to")->i == static_cast<int64_t>(OnnxElement::kFloat);
    if (const OnnxAttribute* value = node.find("value"); value && value->tensor)
      return value->tensor->element == OnnxElement::kFloat;
    const size_t data = node.op == "Where" ? 1 : 0;
    return node.op == "If" || (data < node.in.size() && floats_.contains(node.in[data]));
  }

  // Computed in 32 bits. So is the sum of a variance and its epsilon.
  bool is_wide(const OnnxNode& node) const {
    static const std::set<std::string> wide{"Pow", "ReduceMean", "ReduceSum",  "Sqrt",
                                            "Exp", "Log",        "Reciprocal", "Softmax"};
    if (wide.contains(node.op)) return true;
    return node.op == "Add" && std::ranges::any_of(node.in, [&](const std::string& in) { return wide_.contains(in); });
  }

  void rewrite_node(OnnxNode& node) {
    const bool floats = gives_floats(node), wide = floats && is_wide(node);
    for (OnnxAttribute& attribute : node.attributes) {
      if (attribute.tensor && attribute.tensor->element == OnnxElement::kFloat)
        attribute.tensor = std::make_shared<OnnxTensor>(constant_in_half(*attribute.tensor));
      if (attribute.graph) HalfNodes(floats_).rewrite_branch(*attribute.graph);
    }
    if (node.op == "Cast" && floats)
      node.attributes = {int_attribute("to", static_cast<int64_t>(OnnxElement::kFloat16))};
    for (std::string& in : node.in) {
      if (wide && floats_.contains(in) && !wide_.contains(in)) in = cast_once(in, ".float", OnnxElement::kFloat);
      if (!wide && wide_.contains(in)) in = cast_once(in, ".half", OnnxElement::kFloat16);
    }
    if (floats) floats_.insert(node.out.begin(), node.out.end());
    if (wide) wide_.insert(node.out.begin(), node.out.end());
    nodes_.push_back(std::move(node));
  }

  std::string cast_once(const std::string& from, const char* ending, OnnxElement element) {
    const std::string to = from + ending;
    if (cast_.insert(to).second) nodes_.push_back(cast_node(from, to, element));
    return to;
  }

  std::set<std::string> floats_, wide_, cast_;  // wide: floats of 32 bits
  std::vector<OnnxNode> nodes_;
};

}  // namespace

void read_piece(const OnnxTensor& tensor, int64_t first, int64_t count, std::vector<float>& values) {
  values.resize(static_cast<size_t>(count));
  if (tensor.fill)
    tensor.fill(first, count, reinterpret_cast<std::byte*>(values.data()));
  else
    std::memcpy(values.data(), tensor.data.data() + first * 4, static_cast<size_t>(count) * 4);
}

void set_half(OnnxModel& model) {
  OnnxGraph& graph = model.graph;
  std::set<std::string> floats;
  std::vector<OnnxNode> first, last;
  for (OnnxTensor& tensor : graph.initializers) {
    if (tensor.element != OnnxElement::kFloat) continue;
    floats.insert(tensor.name);
    tensor = weight_in_half(OnnxTensor(tensor));
  }
  for (const OnnxValueInfo& input : graph.inputs) {
    if (input.element != OnnxElement::kFloat) continue;
    const std::string half = input.name + ".float16";
    rename(graph, input.name, half);
    first.push_back(cast_node(input.name, half, OnnxElement::kFloat16));
    floats.insert(half);
  }
  for (const OnnxValueInfo& output : graph.outputs) {
    if (output.element != OnnxElement::kFloat) continue;
    for (OnnxNode& node : graph.nodes)
      for (auto* names : {&node.in, &node.out}) std::ranges::replace(*names, output.name, output.name + ".float16");
    last.push_back(cast_node(output.name + ".float16", output.name, OnnxElement::kFloat));
  }
  HalfNodes(std::move(floats)).rewrite(graph);
  graph.nodes.insert(graph.nodes.begin(), first.begin(), first.end());
  graph.nodes.insert(graph.nodes.end(), last.begin(), last.end());
}

}  // namespace linnet
