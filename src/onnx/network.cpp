#include "onnx/network.h"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include "base/fail.h"
#include "base/files.h"
#include "base/functions.h"
#include "base/text.h"
#include "engine/exec/interpreter.h"
#include "engine/ops/movement/movement.h"
#include "formats/safetensors.h"
#include "models/nn/initializer.h"
#include "models/nn/trace.h"
#include "onnx/compose.h"

namespace linnet {
namespace {
constexpr const char* kNetworkFile = "network.onnx";
constexpr const char* kParametersFile = "model.safetensors";
constexpr double kMostFolded = 1 << 28;  // elements of a result that is computed while tracing

void visit_nodes(const std::vector<OnnxNode>& nodes, const std::function<void(const OnnxNode&)>& visit) {
  for (const OnnxNode& node : nodes) {
    visit(node);
    for (const OnnxAttribute& attribute : node.attributes)
      if (attribute.graph) visit_nodes(attribute.graph->nodes, visit);
  }
}

std::string full_name(const OnnxNode& node) {
  return node.domain.empty() || node.domain == "ai.onnx" ? node.op : node.domain + "." + node.op;
}

Initializer file_values(const OnnxModel& model, const OnnxTensor& tensor) {
  return [&model, &tensor](std::span<float> values, const Shape&, const std::function<double()>&) {
    read_floats(*element_dtype(tensor.element), tensor.data.data(), static_cast<int64_t>(values.size()), values.data());
    model.drop_pages(tensor);
  };
}

Initializer filters_last(const OnnxModel& model, const OnnxTensor& tensor) {
  return [&tensor, read = file_values(model, tensor)](
             std::span<float> values, const Shape& shape, const std::function<double()>& random) {
    std::vector<float> first(values.size());
    read(first, shape, random);
    transpose_each(tensor.dims[0], tensor.dims[1], tensor.dims[2] * tensor.dims[3], first.data(), values.data());
  };
}

std::vector<TracedValue> fold(const OnnxCall& call, Graph& graph) {
  std::vector<TracedValue> out = call.out();
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i].tensor.defined()) continue;
    if (static_cast<double>(out[i].tensor.shape().elements()) > kMostFolded) call.fail("a constant that is too large");
    graph.output("o" + std::to_string(i), out[i].tensor);
  }
  const NamedTensors results = interpret(graph, {}).outputs;
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i].tensor.defined()) continue;
    out[i].known = std::make_shared<HostTensor>(results.at("o" + std::to_string(i)));
    out[i].tensor = {};
  }
  return out;
}

struct Head {
  size_t weight, bias;  // of graph.initializers; kAbsent: there is none
  bool by_rows;         // [classes, features], as Gemm with transB has it; else [features, classes]
};
constexpr size_t kAbsent = SIZE_MAX;

const OnnxNode* producer(const OnnxGraph& graph, const std::string& value) {
  const auto found = std::ranges::find_if(graph.nodes, [&](const OnnxNode& node) { return contains(node.out, value); });
  return found == graph.nodes.end() ? nullptr : &*found;
}

// The float initializer with this name that only one node reads.
size_t own_initializer(const OnnxGraph& graph, const std::string& name) {
  const auto readers_in = [&](const OnnxNode& node) { return std::ranges::count(node.in, name); };
  const auto found = std::ranges::find(graph.initializers, name, &OnnxTensor::name);
  if (sum_of<int64_t>(graph.nodes, readers_in) != 1 || found == graph.initializers.end() ||
      found->element != OnnxElement::kFloat)
    return kAbsent;
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

// The network of `linnet import` or `linnet export --onnx`; "": none. If model.safetensors is there too, it is read
// instead of an exported network, by its family.
std::string network_of(const std::string& folder) {
  if (const std::string imported = folder + "/" + kNetworkFile; file_exists(imported)) return imported;
  const std::string exported = folder + "/model.onnx";
  return file_exists(exported) && !file_exists(folder + "/" + kParametersFile) ? exported : "";
}
}  // namespace

OnnxNetwork::OnnxNetwork(OnnxModel model, std::string file) : model_(std::move(model)), file_(std::move(file)) {
  visit_nodes(model_.graph.nodes, [&](const OnnxNode& node) {
    if (find_onnx_operator(full_name(node))) return;
    fail_user("'", file_, "' needs the operator ", full_name(node),
        node.name.empty() ? "" : " (node \"" + node.name + "\")",
        ", which Linnet does not have; `linnet onnx operators` lists those it has");
  });
  find_parameters();
}

void OnnxNetwork::find_parameters() {
  std::set<std::string> fixed, statistics;
  std::map<std::string, int> readers;
  visit_nodes(model_.graph.nodes, [&](const OnnxNode& node) {
    for (const std::string& name : node.in) ++readers[name];
  });
  const auto is_own = [&](const std::string& name) {  // of one operator: exporters let equal values be shared
    return readers[name] == 1 && contains(model_.graph.initializers, name, &OnnxTensor::name);
  };
  visit_nodes(model_.graph.nodes, [&](const OnnxNode& node) {
    const OnnxAttribute* mode = node.find("training_mode");  // before opset 14 several results mean it
    if (node.op == "BatchNormalization" && node.in.size() == 5 && (node.out.size() > 1 || (mode && mode->i != 0)) &&
        is_own(node.in[3]) && is_own(node.in[4]))
      statistics.insert({node.in[3], node.in[4]});
    if (const OnnxOperatorRow* row = find_onnx_operator(full_name(node)))
      for (const size_t i : row->fixed)
        if (i < node.in.size()) fixed.insert(node.in[i]);
  });
  find_filters();
  // Tensors of whole cache lines first: a weight at a cache line's start can be packed in place.
  auto tensors = mapped(model_.graph.initializers, [](const OnnxTensor& tensor) { return &tensor; });
  std::stable_partition(
      tensors.begin(), tensors.end(), [](const OnnxTensor* tensor) { return tensor->elements() % 16 == 0; });
  for (const OnnxTensor* each : tensors) {
    const OnnxTensor& tensor = *each;
    const bool floats = is_float(tensor.element) && tensor.element != OnnxElement::kDouble;
    const bool is_statistic = statistics.contains(tensor.name);
    if (!floats || tensor.dims.empty() || tensor.dims.size() > kMaxRank || tensor.elements() == 0 ||
        (fixed.contains(tensor.name) && !is_statistic))
      continue;
    const std::span<const int64_t> dims(tensor.dims);
    if (is_statistic) buffers_.emplace_back(this, tensor.name, Shape(dims), file_values(model_, tensor));
    else if (is_filters(tensor))
      own_.emplace_back(this, tensor.name, Shape{dims[0], dims[2], dims[3], dims[1]}, filters_last(model_, tensor));
    else own_.emplace_back(this, tensor.name, Shape(dims), file_values(model_, tensor));
    parameters_[tensor.name] = is_statistic ? &buffers_.back() : &own_.back();
  }
  for (const OnnxValueInfo& input : model_.graph.inputs)
    if (!contains(model_.graph.initializers, input.name, &OnnxTensor::name)) inputs_.push_back(input);
}

void OnnxNetwork::find_filters() {
  std::set<std::string> others;
  std::map<std::string, std::string> handed_on;  // by Identity, which exporters put before equal weights
  const auto origin = [&](const std::string& name) { return find_or(handed_on, name, name); };
  visit_nodes(model_.graph.nodes, [&](const OnnxNode& node) {
    const bool is_conv = full_name(node) == "Conv";
    if (full_name(node) == "Identity" && node.in.size() == 1 && node.out.size() == 1) {
      handed_on[node.out[0]] = origin(node.in[0]);
      return;
    }
    for (size_t i = 0; i < node.in.size(); ++i) (is_conv && i == 1 ? filters_ : others).insert(origin(node.in[i]));
  });
  const auto add_outputs = [&](const OnnxGraph& graph) {
    for (const OnnxValueInfo& output : graph.outputs) others.insert(origin(output.name));
  };
  add_outputs(model_.graph);
  visit_nodes(model_.graph.nodes, [&](const OnnxNode& node) {
    for (const OnnxAttribute& attribute : node.attributes)
      if (attribute.graph) add_outputs(*attribute.graph);
  });
  std::erase_if(filters_, [&](const std::string& name) { return others.contains(name); });
}

TracedValue OnnxNetwork::initial_value(const OnnxTensor& tensor) const {
  if (const auto* found = find_value(parameters_, tensor.name)) {
    const Tensor parameter = (*found)->tensor();
    return {.element = OnnxElement::kFloat,
        .tensor = is_filters(tensor) ? compose::channels_first(parameter) : parameter,
        .initial = &tensor,
        .buffer = (*found)->spec().buffer ? static_cast<const SavedBuffer*>(*found) : nullptr};
  }
  return {.element = tensor.element, .known = std::make_shared<HostTensor>(read_host_tensor(tensor))};
}

void OnnxNetwork::check_trainable() const {
  static const std::set<std::string> quantized{"ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear",
      "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits", "QGemm", "QLinearConv",
      "QLinearMatMul", "QuantizeLinear"};
  visit_nodes(model_.graph.nodes, [&](const OnnxNode& node) {
    if (quantized.contains(node.op))
      fail_user("'", file_, "' is quantized (", node.op, node.name.empty() ? "" : " \"" + node.name + "\"",
          "), and whole numbers cannot be trained: start from the network in floats; this one can be run");
  });
  if (parameters_.empty()) fail_user("'", file_, "' has no weights to train");
}

std::map<std::string, Tensor> OnnxNetwork::run(const std::map<std::string, Tensor>& inputs, const TracedValues& known) {
  TracedValues values = known;
  for (const auto& [name, tensor] : inputs) {
    const auto info = std::ranges::find(inputs_, name, &OnnxValueInfo::name);
    if (info == inputs_.end()) fail_user("'", file_, "' has no input \"", name, "\"");
    values[name] = {.element = info->element, .tensor = tensor};
  }
  std::map<std::string, Tensor> results;
  Graph& graph = Trace::current().graph();
  const OnnxNode none;
  try {
    for (auto& [name, value] : trace(graph, values)) {
      OnnxCall call(none, 0, graph, {value});
      results[name] = is_whole(value.element) ? call.tensor(0, DType::kI32) : call.tensor(0);
    }
  } catch (const Error& error) {  // some networks take other sizes than they declare
    std::string problems;
    for (const OnnxValueInfo& input : inputs_)
      if (const TracedValue* value = find_value(values, input.name)) problems += size_problem(input, value->shape());
    throw Error(error.kind(), error.what() + problems);
  }
  return results;
}

TracedValues OnnxNetwork::trace(Graph& graph, const TracedValues& inputs) {
  TracedValues values = inputs;
  for (const OnnxValueInfo& input : inputs_)
    if (!values.contains(input.name)) fail_user("'", file_, "': input \"", input.name, "\" is not given");
  for (const OnnxTensor& tensor : model_.graph.initializers)
    if (!values.contains(tensor.name)) values[tensor.name] = initial_value(tensor);
  position_ = 0;
  trace_nodes(graph, model_.graph.nodes, values);
  TracedValues results;
  for (const OnnxValueInfo& output : model_.graph.outputs) results[output.name] = values.at(output.name);
  return results;
}

void OnnxNetwork::trace_nodes(Graph& graph, const std::vector<OnnxNode>& nodes, TracedValues& values) {
  for (const OnnxNode& node : nodes) {
    ++position_;
    graph.set_origin(intern_source_line(file_, position_, node.op + (node.name.empty() ? "" : " " + node.name)));
    trace_node(graph, node, values);
  }
  graph.set_origin(std::nullopt);
}

std::vector<TracedValue> OnnxNetwork::run_operator(
    Graph& graph, const OnnxNode& node, int64_t version, std::vector<TracedValue> in, bool known) {
  Graph scratch;
  OnnxCall call(node, version, known ? scratch : graph, std::move(in));
  find_onnx_operator(full_name(node))->run(call);
  call.check_attributes();
  return known ? fold(call, scratch) : call.out();
}

void OnnxNetwork::trace_node(Graph& graph, const OnnxNode& node, TracedValues& values) {
  std::vector<TracedValue> results;
  if (!find_onnx_operator(full_name(node))->run) {
    results = trace_control(graph, node, values);
  } else {
    std::vector<TracedValue> in;
    bool known = true;
    for (const std::string& name : node.in) {
      in.push_back(name.empty() ? TracedValue{} : values.at(name));
      const bool is_type_alone = node.op == "CastLike" && in.size() == 2;  // its elements are not read
      known = known && (name.empty() || in.back().known || is_type_alone);
    }
    results = run_operator(graph, node, find_or(model_.opsets, node.domain, 1), std::move(in), known);
  }
  for (size_t i = 0; i < node.out.size(); ++i) {
    if (node.out[i].empty()) continue;
    if (i >= results.size() || (!results[i].tensor.defined() && !results[i].known))
      fail_user("'", file_, "': ", full_name(node), " has no result ", i);
    values[node.out[i]] = results[i];
  }
}

OnnxTensor OnnxNetwork::trained_tensor(const OnnxTensor& tensor, const float* values) const {
  OnnxTensor trained{.name = tensor.name, .element = tensor.element, .dims = tensor.dims};
  const auto count = static_cast<size_t>(tensor.elements());
  if (is_filters(tensor)) {
    const auto moved = std::make_shared<std::vector<float>>(count);
    transpose_each(tensor.dims[0], tensor.dims[2] * tensor.dims[3], tensor.dims[1], values, moved->data());
    values = moved->data(), trained.owner = moved;
  }
  if (tensor.element == OnnxElement::kFloat) trained.data = std::as_bytes(std::span(values, count));
  else
    trained.fill = [values, owner = trained.owner, dtype = *element_dtype(tensor.element)](
                       int64_t first, int64_t part, std::byte* out) { write_floats(dtype, values + first, part, out); };
  return trained;
}

bool is_onnx_path(const std::string& path) {
  return !path.empty() && (std::filesystem::path(path).extension() == ".onnx" || !network_of(path).empty());
}

std::unique_ptr<OnnxNetwork> load_onnx(const std::string& path, int64_t classes) {
  const std::string file = std::filesystem::is_directory(path) ? network_of(path) : path;
  if (file.empty())
    fail_user("'", path,
        "' is a folder without network.onnx or model.onnx, which `linnet import` and `linnet export "
        "--onnx` write");
  OnnxModel model = read_onnx(file);
  if (classes > 0) replace_head(model, classes);
  return std::make_unique<OnnxNetwork>(std::move(model), file);
}

void save_onnx_folder(const OnnxNetwork& network, const std::string& folder) {
  const OutputFolder made(folder);
  const std::string parameters = path_in(folder, kParametersFile);
  OnnxModel model = network.model();
  std::vector<std::vector<float>> converted;
  std::vector<SafetensorsTensor> tensors;
  for (OnnxTensor& tensor : model.graph.initializers) {
    if (!network.is_parameter(tensor.name)) continue;
    std::vector<float>& values = converted.emplace_back(tensor.elements());
    read_floats(*element_dtype(tensor.element), tensor.data.data(), tensor.elements(), values.data());
    tensors.push_back({tensor.name, {DType::kF32, Shape(std::span<const int64_t>(tensor.dims))}, values.data()});
  }
  save_safetensors(parameters, tensors, {{"format", "pt"}});
  const SafetensorsFile written(parameters);
  const uint64_t data_bytes = sum_of<uint64_t>(written.entries(), &SafetensorsEntry::bytes);
  const uint64_t begin = std::filesystem::file_size(parameters) - data_bytes;
  for (OnnxTensor& tensor : model.graph.initializers) {
    if (!network.is_parameter(tensor.name)) continue;
    tensor.element = OnnxElement::kFloat;
    tensor.external_file = kParametersFile;
    tensor.external_offset =
        begin + static_cast<uint64_t>(written.at(tensor.name).data - written.entries().front().data);
  }
  write_onnx(model, path_in(folder, kNetworkFile));
}

std::string size_problem(const OnnxValueInfo& input, const Shape& given) {
  const auto fits = [](const OnnxDim& dim, int64_t size) { return dim.size < 0 || dim.size == size; };
  if (!input.has_shape || std::ranges::equal(input.dims, given.sizes(), fits)) return "";
  const auto size_of = [](const OnnxDim& dim) { return dim.size < 0 ? "?" : std::to_string(dim.size); };
  return text_of_parts("; input \"", input.name, "\" is [", joined(input.dims, ", ", size_of), "] in the file, got ",
      given, ": give it such sizes (batch_size, image_size), or export it with open ones (dynamic_axes in PyTorch)");
}

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
