#include <algorithm>
#include "api/cpp/learner_state.h"
#include "base/fail.h"
#include "base/process.h"
#include "linnet/onnx.h"
#include "onnx/network.h"
#include "onnx/save_onnx.h"

namespace linnet {
struct OnnxModule::State {
  explicit State(const std::string& path) : network(load_onnx(path)) {}
  std::unique_ptr<OnnxNetwork> network;
};

OnnxModule::OnnxModule(Module* parent, std::string name, const std::string& path)
    : Module(parent, std::move(name)), state_(std::make_unique<State>(path)) {
  adopt(*state_->network, "");
}

OnnxModule::OnnxModule(OnnxModule&& other) noexcept = default;
OnnxModule::~OnnxModule() = default;

namespace {
std::vector<std::string> names_of(const std::vector<OnnxValueInfo>& infos) {
  return mapped(infos, &OnnxValueInfo::name);
}

// All inputs' open axes with their names.
struct OpenAxes {
  std::map<std::string, std::map<int, int>> symbols;  // index of the name, by input and axis
  std::vector<std::string> names;

  OpenAxes(const InputTypes& inputs, const OnnxExportOptions& options) {
    for (const auto& [name, axes] : options.open_axes)
      if (!inputs.contains(name)) fail_user("the open axes are of \"", name, "\", which is no input");
    for (const auto& [name, type] : inputs) {
      const auto given = options.open_axes.find(name);
      if (given == options.open_axes.end() && type.shape.rank() > 0) add(name, 0, "batch");
      if (given == options.open_axes.end()) continue;
      for (const auto& [axis, symbol] : given->second) {
        (void)type.shape[axis];  // an Error if there is none
        add(name, axis, symbol);
      }
    }
  }
  InputTypes at(InputTypes types, std::span<const int64_t> sizes) const {
    for (const auto& [name, axes] : symbols)
      for (const auto& [axis, symbol] : axes) types[name].shape.set(axis, sizes[static_cast<size_t>(symbol)]);
    return types;
  }

 private:
  void add(const std::string& input, int axis, const std::string& symbol) {
    const auto found = std::ranges::find(names, symbol);
    symbols[input][axis] = static_cast<int>(found - names.begin());
    if (found == names.end()) names.push_back(symbol);
  }
};
}  // namespace

std::vector<std::string> OnnxModule::inputs() const { return names_of(state_->network->inputs()); }
std::vector<std::string> OnnxModule::outputs() const { return names_of(state_->network->outputs()); }

std::map<std::string, Tensor> OnnxModule::operator()(const std::map<std::string, Tensor>& inputs) {
  ModuleScope scope(*this);
  return state_->network->run(inputs);
}

Tensor OnnxModule::operator()(Tensor input) {
  const std::vector<std::string> names = inputs();
  if (names.size() != 1 || outputs().empty())
    fail_user(state_->network->file(), ": the network has ", names.size(), " inputs and ", outputs().size(),
        " outputs; give them by name");
  return (*this)({{names[0], input}}).at(outputs()[0]);
}

void export_onnx(const Learner& learner, const InputTypes& inputs, const std::function<void(Tracer&)>& outputs,
    const std::string& path, const OnnxExportOptions& options) {
  const DefaultFloats floats;
  if (!outputs) fail_user("export_onnx() needs a function that names outputs");
  const OpenAxes open(inputs, options);
  if (open.names.size() > 4) fail_user("at most 4 sizes can stay open, not ", open.names.size());
  OnnxSource source{.symbols = open.names};
  source.trace = [&](Trace& trace, std::span<const int64_t> sizes) {
    const InputTypes types = open.at(inputs, sizes);
    Tracer tracer(trace, &types);
    for (const auto& [name, type] : types) tracer.input(name);
    outputs(tracer);
    if (trace.graph().outputs().empty()) fail_user("the function given to export_onnx() names no output");
  };
  const auto& s = LearnerAccess::state(learner).weights();
  std::vector<float> flat(s.layout.parameter_count()), unpacked;
  const ParameterValues values = s.evaluated_values();
  for (const ParameterSlot& slot : s.layout.parameters())
    std::copy_n(values.of(slot, unpacked), slot.spec.shape.elements(), flat.begin() + slot.offset);
  // These sizes exceed those at which ops take other forms, ascend in every set and seldom equal constants. If a table
  // of the model has fewer rows, the export fails and is repeated with the default sizes.
  const SizeSets large{{11, 29, 47, 67}, {13, 31, 53, 73}, {17, 37, 59, 79}, {19, 41, 61, 89}};
  for (const std::vector<int64_t>& sizes : large)
    source.sizes.emplace_back(sizes.begin(), sizes.begin() + static_cast<int>(open.names.size()));
  try {
    save_onnx(s.layout, flat.data(), source, path, {.opset = options.opset});
  } catch (const std::exception&) {  // of a program in Python, too
    source.sizes.clear();
    save_onnx(s.layout, flat.data(), source, path, {.opset = options.opset});
  }
}
}  // namespace linnet
