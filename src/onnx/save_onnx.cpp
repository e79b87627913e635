#include "onnx/save_onnx.h"
#include <algorithm>
#include "base/fail.h"
#include "engine/ir/op.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
std::vector<Graph> trace_all(const OnnxSource& source, const SizeSets& sets) {
  std::vector<Graph> traces;
  for (const std::vector<int64_t>& sizes : sets) {
    Trace trace;
    source.trace(trace, sizes);
    const Graph basic =
        decompose(trace.finish(), [](const OpDef& op) { return find_onnx_lowering(op.name) != nullptr; });
    traces.push_back(remove_dead_code(basic));
  }
  return traces;
}

std::map<std::string, OnnxParameter> parameters_of(
    const ParameterLayout& layout, const float* parameters, const std::shared_ptr<std::vector<float>>& constants) {
  std::map<std::string, OnnxParameter> result;
  for (const ParameterSlot& location : layout.parameters())
    result[location.spec.name] = {location.spec.name, location.spec.shape, parameters + location.offset};
  for (const ParameterSlot& location : layout.constants())
    result[location.spec.name] = {
        location.spec.name, location.spec.shape, constants->data() + location.offset, constants};
  return result;
}
}  // namespace

// In all sets, no size is another one, or a sum or product of others. A sequence and its past have at most twelve
// positions, which the smallest models have.
SizeSets default_sizes(size_t symbols) {
  const SizeSets all{{2, 5, 3, 4}, {3, 7, 2, 5}, {5, 4, 6, 2}, {4, 6, 4, 3}};
  SizeSets sets;
  for (const std::vector<int64_t>& set : all) sets.emplace_back(set.begin(), set.begin() + static_cast<int>(symbols));
  return sets;
}

OnnxModel make_onnx(
    const ParameterLayout& layout, const float* parameters, const OnnxSource& source, const OnnxOptions& options) {
  if (options.opset < kLeastOnnxOpset || options.opset > kMostOnnxOpset)
    fail_user("opset ", options.opset, " cannot be written; ", kLeastOnnxOpset, " to ", kMostOnnxOpset, " can");
  const SizeSets sets = source.sizes.empty() ? default_sizes(source.symbols.size()) : source.sizes;
  const std::vector<Graph> traces = trace_all(source, sets);
  const auto constants = std::make_shared<std::vector<float>>(layout.constant_count());
  if (!constants->empty()) {
    ThreadPool pool(1);
    layout.initialize_constants(constants->data(), pool);
  }
  const auto known = parameters_of(layout, parameters, constants);

  OnnxBuilder builder(options.opset, source.symbols);
  OnnxLowering lowering(builder, traces, sets, source.form);
  for (const GraphInput& input : traces[0].inputs()) {
    const auto mask = std::ranges::find_if(source.masks, [&](const OnnxMask& m) { return m.lengths == input.name; });
    if (const auto found = known.find(input.name); found != known.end()) {
      lowering.bind_parameter(input.value, found->second);
    } else if (mask != source.masks.end()) {
      builder.input(mask->name, OnnxElement::kInt64, mask->shape);
      lowering.bind_key_mask(input.value, mask->name);
    } else {
      lowering.bind_input(input.value);
    }
  }
  lowering.run();
  std::vector<GraphOutput> outputs = traces[0].outputs();
  std::stable_partition(outputs.begin(), outputs.end(), [&](const GraphOutput& output) {
    return std::ranges::find(source.first_outputs, output.name) != source.first_outputs.end();
  });
  for (const GraphOutput& output : outputs)
    builder.output(output.name, lowering.value(output.value), onnx_element(traces[0].value(output.value).type.dtype),
        lowering.shape_of(output.value));

  OnnxModel model;
  model.ir_version = options.opset >= 17 ? 8 : 7;
  model.opsets[""] = options.opset;
  model.producer = "linnet";
  model.graph = builder.finish("linnet");
  return model;
}

void save_onnx(const ParameterLayout& layout, const float* parameters, const OnnxSource& source,
    const std::string& path, const OnnxOptions& options) {
  OnnxModel model = make_onnx(layout, parameters, source, options);
  set_precision(model, options.precision, options.input_scales);
  write_onnx(model, path, options.most_inside);
}
}  // namespace linnet
