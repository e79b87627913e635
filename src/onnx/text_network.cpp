#include "onnx/text_network.h"
#include <set>
#include "base/fail.h"
#include "base/text.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/reduce/reduce.h"
#include "models/modules/text_encoder.h"

namespace linnet {
namespace {
constexpr const char *kTokens = "input_ids", *kTokenMask = "attention_mask", *kTypes = "token_type_ids",
                     *kPositions = "position_ids", *kLogits = "logits";
constexpr const char* kHead = "linnet_head";  // names no parameter of an exporter
constexpr double kHeadDeviation = 0.02;       // as BERT's

Tensor mean_state(Tensor states, Tensor mask) {
  const int64_t batch = states.dim(0), length = states.dim(1), width = states.dim(2);
  const Tensor sums = matmul(reshape(mask, {batch, 1, length}), states);
  const Tensor counts = reshape(sum_to(mask, {batch, 1}), {batch, 1, 1});
  return reshape(sums / broadcast_to(counts, sums.shape()), {batch, width});
}

OnnxTensor parameter_tensor(const ParameterSlot& slot, const float* parameters) {
  OnnxTensor tensor{.name = slot.spec.name, .element = OnnxElement::kFloat};
  tensor.dims.assign(slot.spec.shape.sizes().begin(), slot.spec.shape.sizes().end());
  tensor.data = std::as_bytes(std::span(parameters + slot.offset, static_cast<size_t>(slot.spec.shape.elements())));
  return tensor;
}

// Uses forms that all opsets have: Reshape takes sizes as an operand, reductions do not take axes so.
void add_head(OnnxGraph& graph, const std::string& features, bool mean, const Shape& weight) {
  const std::string name = kHead;
  const auto add = [&](const char* op, const std::string& out, std::vector<std::string> in,
                       std::vector<OnnxAttribute> attributes = {}) {
    graph.nodes.push_back({.name = name + "/" + op + "_" + out,
        .op = op,
        .in = std::move(in),
        .out = {out},
        .attributes = std::move(attributes)});
    return out;
  };
  const auto constant = [&](const std::string& what, const std::vector<int64_t>& values) {
    graph.initializers.push_back(int64_tensor({std::ssize(values)}, values, name + "." + what));
    return graph.initializers.back().name;
  };
  std::string x = features;
  if (mean) {
    const std::string mask = add("Cast", name + ".mask", {kTokenMask}, {int_attribute("to", 1)});
    const std::string row = add("Reshape", name + ".row", {mask, constant("row_shape", {0, 1, -1})});
    const std::string column = add("Reshape", name + ".column", {mask, constant("column_shape", {0, -1, 1})});
    const std::string sums = add("MatMul", name + ".sums", {row, features});
    const std::string counts = add("MatMul", name + ".counts", {row, column});
    const std::string means = add("Div", name + ".means", {sums, counts});
    x = add("Reshape", name + ".features", {means, constant("features_shape", {-1, weight[1]})});
  }
  add("Gemm", kLogits, {x, name + ".weight", name + ".bias"}, {int_attribute("transB", 1)});
  OnnxValueInfo logits{.name = kLogits, .element = OnnxElement::kFloat, .has_shape = true};
  logits.dims = {graph.inputs.front().dims.empty() ? OnnxDim{} : graph.inputs.front().dims.front(), {weight[0], ""}};
  graph.outputs = {logits};
}
}  // namespace

OnnxTextModel::OnnxTextModel(std::unique_ptr<OnnxNetwork> network, int64_t classes, int64_t longest)
    : network_(std::move(network)), classes_(classes), longest_(longest) {
  network_->check_trainable();
  check_inputs();
  choose_output();
}

void OnnxTextModel::check_inputs() const {
  const std::set<std::string> known{kTokens, kTokenMask, kTypes, kPositions};
  const auto fail = [&](const std::string& problem) {
    fail_user("'", network_->file(), "' does not fit texts: ", problem);
  };
  for (const OnnxValueInfo& input : network_->inputs()) {
    if (!known.contains(input.name))
      fail("its input \"" + input.name + "\" is none of input_ids, attention_mask, token_type_ids and position_ids");
    if (input.element != OnnxElement::kInt64 && input.element != OnnxElement::kInt32)
      fail("its input \"" + input.name + "\" is of " + element_name(input.element) + "; whole numbers are needed");
    if (input.has_shape && input.dims.size() != 2)
      fail("its input \"" + input.name + "\" has " + std::to_string(input.dims.size()) + " axes; [batch, length] fits");
    for (const OnnxDim& dim : input.dims)
      if (dim.size >= 0)
        fail("its input \"" + input.name + "\" has the fixed size " + std::to_string(dim.size) +
             "; export it with an open batch and length (torch.onnx.export: dynamic_axes)");
  }
  for (const char* name : {kTokens, kTokenMask})
    if (!contains(network_->inputs(), std::string_view(name), &OnnxValueInfo::name))
      fail(std::string("it has no input \"") + name + "\"");
}

// Traces a small batch to see the outputs.
void OnnxTextModel::choose_output() {
  constexpr int64_t kBatch = 2, kLength = 6;
  std::map<std::string, Shape> shapes;
  {
    Trace trace;
    const Tensor tokens = trace.input("tokens", {DType::kI32, {kBatch, kLength}});
    const Tensor lengths = trace.input("lengths", {DType::kI32, {kBatch}});
    for (const auto& [name, tensor] : network_->run(inputs_of(tokens, lengths, {}))) shapes[name] = tensor.shape();
  }
  const auto is = [&](const std::string& name, int rank) {
    const auto found = shapes.find(name);
    return found != shapes.end() && found->second.rank() == rank && found->second[0] == kBatch &&
           (rank == 2 || found->second[1] == kLength);
  };
  if (is(kLogits, 2) || (shapes.size() == 1 && is(shapes.begin()->first, 2))) {
    output_ = is(kLogits, 2) ? kLogits : shapes.begin()->first;
    const int64_t given = shapes.at(output_)[1];
    if (classes_ == 0) classes_ = given;
    if (given != classes_)
      fail_user("'", network_->file(), "' gives logits of ", given, " classes and the texts have ", classes_,
          "; of a network that gives last_hidden_state a new head is trained");
  } else if (is("pooler_output", 2)) {
    output_ = "pooler_output", kind_ = Output::kPooled;
  } else {
    output_ = "last_hidden_state", kind_ = Output::kStates;
    for (auto each = shapes.begin(); !is(output_, 3) && each != shapes.end(); ++each)
      if (each->first != kLogits && is(each->first, 3)) output_ = each->first;
    if (!is(output_, 3))
      fail_user("'", network_->file(),
          "' does not fit texts: it gives neither logits [batch, classes] nor last_hidden_state [batch, length, "
          "width]");
  }
  if (classes_ == 0) classes_ = 2;
  adopt(*network_, "");
  if (kind_ != Output::kLogits)
    head_.emplace(
        this, kHead, shapes.at(output_)[kind_ == Output::kPooled ? 1 : 2], classes_, normal_init(kHeadDeviation));
}

std::map<std::string, Tensor> OnnxTextModel::inputs_of(Tensor tokens, Tensor lengths, Tensor types) const {
  std::map<std::string, Tensor> inputs;
  for (const OnnxValueInfo& input : network_->inputs()) {
    if (input.name == kTokens) inputs[kTokens] = tokens;
    if (input.name == kTokenMask) inputs[kTokenMask] = token_mask(lengths, tokens.dim(1), DType::kF32);
    if (input.name == kPositions) inputs[kPositions] = counted_positions(tokens);
    if (input.name == kTypes) inputs[kTypes] = types.defined() ? types : fill(*tokens.graph, tokens.type(), 0);
  }
  return inputs;
}

Tensor OnnxTextModel::logits(Tensor tokens, Tensor lengths, Tensor types) {
  const Tensor output = network_->run(inputs_of(tokens, lengths, types)).at(output_);
  if (kind_ == Output::kLogits) return output;
  return (*head_)(
      kind_ == Output::kPooled ? output : mean_state(output, token_mask(lengths, tokens.dim(1), DType::kF32)));
}

OnnxModel OnnxTextModel::with_parameters(const ParameterLayout& layout, const float* parameters) const {
  OnnxModel model = network_->model();
  std::map<std::string, const ParameterSlot*> slots;
  for (const ParameterSlot& slot : layout.parameters()) slots[slot.spec.name] = &slot;
  for (OnnxTensor& tensor : model.graph.initializers)
    if (network_->is_parameter(tensor.name))
      tensor = network_->trained_tensor(tensor, parameters + slots.at(tensor.name)->offset);
  if (!head_) return model;
  const ParameterSlot &weight = *slots.at(kHead + std::string(".weight")),
                      &bias = *slots.at(kHead + std::string(".bias"));
  model.graph.initializers.push_back(parameter_tensor(weight, parameters));
  model.graph.initializers.push_back(parameter_tensor(bias, parameters));
  add_head(model.graph, output_, kind_ == Output::kStates, weight.spec.shape);
  return model;
}

OnnxImageModel::OnnxImageModel(std::unique_ptr<OnnxNetwork> network, const ImageShape& images,
    const std::vector<double>& mean, const std::vector<double>& deviation)
    : ImageModel(images, mean, deviation), network_(std::move(network)) {
  network_->check_trainable();
  const std::vector<OnnxValueInfo>& inputs = network_->inputs();
  if (inputs.size() != 1 || (inputs[0].has_shape && inputs[0].dims.size() != 4) || network_->outputs().size() != 1)
    fail_user("a network for images takes one tensor of four axes and gives one; this one has ", inputs.size(),
        " inputs and ", network_->outputs().size(), " outputs");
  takes_bytes_ = inputs[0].element == OnnxElement::kUint8;
  Shape given = takes_bytes_ ? Shape{1, images.height, images.width, images.channels}
                             : Shape{1, images.channels, images.height, images.width};
  if (inputs[0].has_shape && inputs[0].dims[0].size >= 0) given.set(0, inputs[0].dims[0].size);  // others may do
  if (const std::string problem = size_problem(inputs[0], given); !problem.empty())
    fail_user("the network takes other images (pictures in color have 3 channels, grey ones 1)", problem);
  adopt(*network_, "");
}

int64_t image_channels(const OnnxNetwork& network) {
  const std::vector<OnnxValueInfo>& inputs = network.inputs();
  if (inputs.size() != 1 || inputs[0].dims.size() != 4) return -1;
  return inputs[0].dims[inputs[0].element == OnnxElement::kUint8 ? 3 : 1].size;
}

Tensor OnnxImageModel::operator()(At x) {
  const Tensor pixels = takes_bytes_ ? x.value : permute(scale_pixels(x, scaling), {0, 3, 1, 2});
  const Tensor logits = network_->run({{network_->inputs()[0].name, pixels}}).begin()->second;
  const Shape expected{x.value.dim(0), images.classes};
  if (logits.shape() != expected)
    fail_user("the network gives ", logits.shape().text(), " for ", expected[0], " images of ", images.classes,
        " classes: logits of shape ", expected.text(), " are needed");
  return logits;
}
}  // namespace linnet
