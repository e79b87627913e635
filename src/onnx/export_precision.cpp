#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include "base/fail.h"
#include "base/log.h"
#include "onnx/save_onnx.h"

namespace linnet {
namespace {
// Visits graphs within nodes first.
void each_graph(OnnxGraph& graph, const std::function<void(OnnxGraph&)>& rewrite) {
  for (OnnxNode& node : graph.nodes)
    for (OnnxAttribute& attribute : node.attributes)
      if (attribute.graph) each_graph(*attribute.graph, rewrite);
  rewrite(graph);
}

// The axis of output channels of a weight that is operand 1 of a node; -1: no such weight.
int channel_axis(const OnnxNode& node, size_t operand, OnnxPrecision precision) {
  if (operand != 1) return -1;
  if (node.op == "MatMul") return 1;
  if (precision != OnnxPrecision::kInt8Qdq) return -1;
  return node.op == "Conv" ? 0 : node.op == "Gemm" && !node.find("transB") ? 1 : -1;
}

// Tensors read only as weights, with their channels' axis.
std::map<std::string, int> weights_of(OnnxModel& model, OnnxPrecision precision) {
  std::map<std::string, int> weights;
  for (const OnnxTensor& tensor : model.graph.initializers)
    if (tensor.element == OnnxElement::kFloat && tensor.dims.size() >= 2) weights[tensor.name] = -2;
  each_graph(model.graph, [&](OnnxGraph& graph) {
    for (const OnnxNode& node : graph.nodes)
      for (size_t i = 0; i < node.in.size(); ++i) {
        const auto found = weights.find(node.in[i]);
        if (found == weights.end()) continue;
        const int axis = channel_axis(node, i, precision);
        found->second = found->second == -2 || found->second == axis ? axis : -1;
      }
  });
  std::erase_if(weights, [](const auto& entry) { return entry.second < 0; });
  return weights;
}

// Element i of a tensor belongs to channel (i / inner) % channels.
struct Channels {
  int64_t count, inner;
  size_t of(int64_t element) const { return static_cast<size_t>(element / inner % count); }
};
Channels channels_of(const OnnxTensor& tensor, int axis) {
  Channels channels{tensor.dims[axis], 1};
  for (size_t i = static_cast<size_t>(axis) + 1; i < tensor.dims.size(); ++i) channels.inner *= tensor.dims[i];
  return channels;
}

constexpr int64_t kPiece = 1 << 16;  // elements of a weight that are rewritten at once

// Elements [first, first + count) of an exported float tensor.
void read_piece(const OnnxTensor& tensor, int64_t first, int64_t count, std::vector<float>& values) {
  values.resize(count);
  if (tensor.fill) tensor.fill(first, count, reinterpret_cast<std::byte*>(values.data()));
  else std::memcpy(values.data(), tensor.data.data() + first * 4, static_cast<size_t>(count) * 4);
}

std::vector<float> scales_of(const OnnxTensor& tensor, const Channels& channels, float most) {
  std::vector<float> scales(channels.count), values;
  const int64_t total = tensor.elements();
  for (int64_t first = 0; first < total; first += kPiece) {
    const int64_t count = std::min(kPiece, total - first);
    read_piece(tensor, first, count, values);
    for (int64_t i = 0; i < count; ++i) {
      float& scale = scales[channels.of(first + i)];
      scale = std::max(scale, std::abs(values[i]));
    }
  }
  for (float& scale : scales) scale = scale > 0 ? scale / most : 1;
  return scales;
}

OnnxTensor quantized(const OnnxTensor& tensor, const Channels& channels, std::vector<float> scales) {
  OnnxTensor result{.name = tensor.name + ".int8", .element = OnnxElement::kInt8, .dims = tensor.dims};
  result.fill = [tensor, channels, scales = std::move(scales)](int64_t first, int64_t count, std::byte* out) {
    std::vector<float> values;
    read_piece(tensor, first, count, values);
    for (int64_t i = 0; i < count; ++i) {
      const float whole = std::nearbyint(values[i] / scales[channels.of(first + i)]);
      out[i] = static_cast<std::byte>(static_cast<int8_t>(whole));
    }
  };
  return result;
}

// Replaces the weights' initializers by NAME.int8, NAME.scale and NAME.zero.
void quantize_weights(OnnxGraph& graph, const std::map<std::string, int>& weights, float most) {
  std::vector<OnnxTensor> kept;
  for (OnnxTensor& tensor : graph.initializers) {
    const auto found = weights.find(tensor.name);
    if (found == weights.end()) {
      kept.push_back(std::move(tensor));
      continue;
    }
    const Channels channels = channels_of(tensor, found->second);
    const std::vector<float> scales = scales_of(tensor, channels, most);
    kept.push_back(quantized(tensor, channels, scales));
    kept.push_back(float_tensor({channels.count}, scales, tensor.name + ".scale"));
    kept.push_back(
        tensor_of(tensor.name + ".zero", OnnxElement::kInt8, {channels.count}, std::vector<std::byte>(channels.count)));
  }
  graph.initializers = std::move(kept);
}

// A DequantizeLinear per weight, before all branches: ONNX Runtime cannot optimize one whose weight is outside.
void dequantize_weights(OnnxModel& model, const std::map<std::string, int>& weights) {
  const auto dequantized = [](const std::string& weight) { return weight + ".dequantized"; };
  each_graph(model.graph, [&](OnnxGraph& graph) {
    for (OnnxNode& node : graph.nodes)
      if (node.in.size() > 1 && weights.contains(node.in[1])) node.in[1] = dequantized(node.in[1]);
  });
  std::vector<OnnxNode> nodes;
  for (const auto& [weight, axis] : weights)
    nodes.push_back(named_node(dequantized(weight), "DequantizeLinear",
        {weight + ".int8", weight + ".scale", weight + ".zero"}, {int_attribute("axis", axis)}));
  model.graph.nodes.insert(model.graph.nodes.begin(), nodes.begin(), nodes.end());
}

OnnxNode cast_node(const std::string& from, const std::string& to, OnnxElement element) {
  return named_node(to, "Cast", {from}, {int_attribute("to", static_cast<int64_t>(element))});
}

// x W as (whole numbers of x) (whole numbers of W), scaled.
void multiply_whole_numbers_in(OnnxGraph& graph, const std::map<std::string, int>& weights) {
  std::set<std::string> made;
  std::vector<OnnxNode> nodes;
  for (OnnxNode& node : graph.nodes) {
    if (node.op != "MatMul" || !weights.contains(node.in[1])) {
      nodes.push_back(std::move(node));
      continue;
    }
    const std::string x = node.in[0], weight = node.in[1], y = node.out[0];
    const std::string whole = graph.name + "/" + x + ".uint8", name = graph.name + "/" + y;
    if (made.insert(whole).second)
      nodes.push_back(
          {.name = whole, .op = "DynamicQuantizeLinear", .in = {x}, .out = {whole, whole + ".scale", whole + ".zero"}});
    nodes.push_back(
        named_node(name + ".int32", "MatMulInteger", {whole, weight + ".int8", whole + ".zero", weight + ".zero"}));
    nodes.push_back(cast_node(name + ".int32", name + ".float", OnnxElement::kFloat));
    nodes.push_back(named_node(name + ".scale", "Mul", {whole + ".scale", weight + ".scale"}));
    nodes.push_back({.name = name + ".scaled", .op = "Mul", .in = {name + ".float", name + ".scale"}, .out = {y}});
  }
  graph.nodes = std::move(nodes);
}

// For an initializer with a parameter, its part ("NAME.1") or its transpose; 0: none.
float input_scale_of(const std::string& initializer, const InputScales& scales) {
  std::string name = initializer;
  for (;;) {
    if (const float* scale = find_value(scales, name)) return *scale;
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) return 0;
    name.resize(dot);
  }
}

// Rounds the products' inputs to 8 bits and back, once per tensor and scale.
void round_inputs(OnnxModel& model, const std::map<std::string, int>& weights, const InputScales& scales) {
  const std::string zero = "input.zero";
  std::set<std::string> made;
  each_graph(model.graph, [&](OnnxGraph& graph) {
    std::vector<OnnxNode> nodes;
    for (OnnxNode& node : graph.nodes) {
      if (node.in.size() > 1 && weights.contains(node.in[1])) {
        const float scale = input_scale_of(node.in[1], scales);
        const std::string x = node.in[0], step = "input.scale." + std::to_string(std::bit_cast<uint32_t>(scale));
        if (made.insert(step).second) model.graph.initializers.push_back(float_tensor({}, {scale}, step));
        const std::string whole = graph.name + "/" + x + "/" + step + ".int8", rounded = whole + ".dequantized";
        if (made.insert(whole).second) {
          nodes.push_back(named_node(whole, "QuantizeLinear", {x, step, zero}));
          nodes.push_back(named_node(rounded, "DequantizeLinear", {whole, step, zero}));
        }
        node.in[0] = rounded;
      }
      nodes.push_back(std::move(node));
    }
    graph.nodes = std::move(nodes);
  });
  model.graph.initializers.push_back(tensor_of(zero, OnnxElement::kInt8, {}, std::vector<std::byte>(1)));
}

void set_int8(OnnxModel& model, OnnxPrecision precision, const InputScales& input_scales) {
  std::map<std::string, int> weights = weights_of(model, precision);
  const bool dynamic = precision == OnnxPrecision::kInt8Dynamic;
  if (!dynamic && !input_scales.empty()) {
    std::erase_if(weights, [&](const auto& entry) { return input_scale_of(entry.first, input_scales) == 0; });
    round_inputs(model, weights, input_scales);
  }
  int64_t all = 0, chosen = 0;
  for (const OnnxTensor& tensor : model.graph.initializers) {
    all += tensor.element == OnnxElement::kFloat ? tensor.elements() : 0;
    chosen += weights.contains(tensor.name) ? tensor.elements() : 0;
  }
  if (chosen < all / 4)
    log_warning(text_of_parts("--precision ", enum_name(precision), " gives ", 100 * chosen / all,
        "% of the numbers 8 bits; embeddings and filters of imported networks keep 32, with int8-dynamic all "
        "filters do"));
  quantize_weights(model.graph, weights, dynamic ? 63 : 127);
  if (!dynamic) return dequantize_weights(model, weights);
  each_graph(model.graph, [&](OnnxGraph& graph) { multiply_whole_numbers_in(graph, weights); });
}

constexpr float kMostHalf = 65504;

OnnxTensor weight_in_half(const OnnxTensor& tensor) {
  OnnxTensor result{.name = tensor.name, .element = OnnxElement::kFloat16, .dims = tensor.dims};
  result.fill = [tensor](int64_t first, int64_t count, std::byte* out) {
    std::vector<float> values;
    read_piece(tensor, first, count, values);
    for (float& value : values)  // masks add the lowest number
      if (std::isfinite(value)) value = std::clamp(value, -kMostHalf, kMostHalf);
    write_floats(FileDType::kF16, values.data(), count, out);
  };
  return result;
}

OnnxTensor constant_in_half(const OnnxTensor& tensor) {
  std::vector<std::byte> data(tensor.elements() * 2);
  weight_in_half(tensor).fill(0, tensor.elements(), data.data());
  return tensor_of(tensor.name, OnnxElement::kFloat16, tensor.dims, std::move(data));
}

void rename(OnnxGraph& graph, const std::string& from, const std::string& to) {
  for (OnnxNode& node : graph.nodes)
    for (auto* names : {&node.in, &node.out}) std::ranges::replace(*names, from, to);
}

class HalfNodes {
 public:
  // `floats`: 16-bit float values of the surrounding graphs.
  explicit HalfNodes(std::set<std::string> floats) : floats_(std::move(floats)) {}

  void rewrite(OnnxGraph& graph) {
    for (OnnxNode& node : graph.nodes) rewrite_node(node);
    graph.nodes = std::move(nodes_);
  }
  // A branch's outputs are those of the node around it.
  void rewrite_branch(OnnxGraph& graph) {
    rewrite(graph);
    for (OnnxValueInfo& output : graph.outputs)
      if (output.element == OnnxElement::kFloat) output.element = OnnxElement::kFloat16;
  }

 private:
  bool gives_floats(const OnnxNode& node) const {
    static const std::set<std::string> whole{
        "Shape", "ArgMax", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Not"};
    if (whole.contains(node.op)) return false;
    if (node.op == "Cast") return node.find("to")->i == static_cast<int64_t>(OnnxElement::kFloat);
    if (const OnnxAttribute* value = node.find("value"); value && value->tensor)
      return value->tensor->element == OnnxElement::kFloat;
    const size_t data = node.op == "Where" ? 1 : 0;
    return node.op == "If" || (data < node.in.size() && floats_.contains(node.in[data]));
  }

  // Computed in 32 bits, as is the sum of a variance and its epsilon.
  bool is_wide(const OnnxNode& node) const {
    static const std::set<std::string> wide{
        "Pow", "ReduceMean", "ReduceSum", "Sqrt", "Exp", "Log", "Reciprocal", "Softmax"};
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

// Powers, sums, roots and softmax may exceed 65504 or need more digits, so they are computed in 32 bits.
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
    each_graph(graph, [&](OnnxGraph& inner) { rename(inner, input.name, half); });
    first.push_back(cast_node(input.name, half, OnnxElement::kFloat16));
    floats.insert(half);
  }
  for (const OnnxValueInfo& output : graph.outputs) {
    if (output.element != OnnxElement::kFloat) continue;
    rename(graph, output.name, output.name + ".float16");
    last.push_back(cast_node(output.name + ".float16", output.name, OnnxElement::kFloat));
  }
  HalfNodes(std::move(floats)).rewrite(graph);
  graph.nodes.insert(graph.nodes.begin(), first.begin(), first.end());
  graph.nodes.insert(graph.nodes.end(), last.begin(), last.end());
}
}  // namespace

OnnxPrecision onnx_precision(const std::string& name) {
  if (const auto precision = enum_value<OnnxPrecision>(name)) return *precision;
  fail_user("--precision \"", name, "\"; there are fp32, fp16, int8-dynamic and int8-qdq");
}

void set_precision(OnnxModel& model, OnnxPrecision precision, const InputScales& input_scales) {
  if (precision == OnnxPrecision::kF16) set_half(model);
  if (precision == OnnxPrecision::kInt8Dynamic || precision == OnnxPrecision::kInt8Qdq)
    set_int8(model, precision, input_scales);
}
}  // namespace linnet
