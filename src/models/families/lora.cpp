#include "models/families/lora.h"
#include <algorithm>
#include <cmath>
#include <map>
#include "base/fail.h"
#include "base/text.h"
#include "models/families/binding.h"
#include "models/families/pretrained.h"
#include "models/nn/layers.h"

namespace linnet {
namespace {
constexpr const char *kWeight = ".weight", *kAllLinear = "all-linear";

bool ends_with_name(const std::string& path, const std::string& name) {
  return path == name || path.ends_with("." + name);
}

std::string without(const std::string& text, const std::string& ending) {
  return text.substr(0, text.size() - ending.size());
}

// A linear layer of the files: some rows of one here.
struct Target {
  NameRow row;
  Linear* layer;
  std::string module;  // "bert.encoder.layer.0.attention.self.query"
};

std::vector<Target> linear_layers(PretrainedModel& model) {
  std::map<std::string, Linear*> layers;
  model.module->visit([&](Module& module) {
    if (auto* linear = dynamic_cast<Linear*>(&module)) layers[linear->path()] = linear;
  });
  std::vector<Target> targets;
  for (const NameRow& row : model.names.rows) {
    if (row.role != TensorRole::kRequired || !row.tensor.ends_with(kWeight) || !row.parameter.ends_with(kWeight))
      continue;
    const auto layer = layers.find(without(row.parameter, kWeight));
    if (layer != layers.end()) targets.push_back({row, layer->second, without(row.tensor, kWeight)});
  }
  return targets;
}

std::string part_name(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// The last parts of the layers' names, each once.
std::string names_of(const std::vector<Target>& targets) {
  std::vector<std::string> names;
  for (const Target& target : targets) {
    const std::string name = part_name(target.module);
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return joined(names);
}

std::vector<Target> chosen(
    const PretrainedModel& model, const std::vector<Target>& layers, const std::vector<std::string>& names) {
  std::vector<Target> result;
  for (const std::string& name : names)
    if (name != kAllLinear &&
        std::ranges::none_of(layers, [&](const Target& layer) { return ends_with_name(layer.module, name); }))
      fail_user("lora.targets: a model of type ", model.family->model_type, " has no linear layer \"", name,
          "\"; it has ", names_of(layers));
  for (const Target& layer : layers)
    if (std::ranges::any_of(
            names, [&](const std::string& name) { return name == kAllLinear || ends_with_name(layer.module, name); }))
      result.push_back(layer);
  return result;
}

// `ending`: ".<name>" for one of several sets.
void add_to_layers(PretrainedModel& model, const LoraOptions& options, int64_t set, const std::string& ending) {
  const std::vector<Target> layers = linear_layers(model);
  for (const Target& target : chosen(model, layers, options.targets)) {
    const Shape& weight = target.layer->weight.spec().shape;
    const int64_t rows = target.row.rows > 0 ? target.row.rows : weight[0], in = weight[1];
    if (options.rank > std::min(rows, in))
      fail_user("lora.rank = ", options.rank, " is above the smaller side of ", target.module, ".weight ",
          Shape{rows, in}.text());
    const std::string part = part_name(target.module) + ending;
    target.layer->low_rank.add(*target.layer, part, target.row.first_row, rows, in, options.rank, options.scale(), set);
    for (const char* side : {".lora_A", ".lora_B"})
      model.names.add(target.module + side + ending + kWeight, target.layer->path() + side + "." + part,
          TensorForm::kSame, TensorRole::kAdapter);
    model.names.rows.back().form = target.row.form == TensorForm::kByHeads ? TensorForm::kByHeads : TensorForm::kSame;
    model.names.rows.back().heads = target.row.heads;  // the rows of lora_B are those of the weight
  }
}
}  // namespace

double LoraOptions::scale() const {
  return alpha / (rank_stabilized ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

void write_lora_options(const LoraOptions& options, ConfigFile& config) {
  ConfigFile values;
  values.set("rank", options.rank), values.set("alpha", options.alpha);
  values.set("targets", options.targets), values.set("rank_stabilized", options.rank_stabilized);
  config.set(kLoraKey, values);
}

std::optional<LoraOptions> read_lora_options(const ConfigFile& config) {
  if (!config.has(kLoraKey)) return {};
  const ConfigFile values = config.object(kLoraKey);
  return LoraOptions{.rank = values.size("rank"),
      .alpha = values.number("alpha", 16),
      .targets = values.texts("targets"),
      .rank_stabilized = values.flag("rank_stabilized", false)};
}

void add_adapters(PretrainedModel& model, const LoraOptions& options) {
  model.lora = options;
  if (options.targets.empty()) model.lora->targets = {kAllLinear};
  add_to_layers(model, *model.lora, LowRank::kAlways, "");
  write_lora_options(*model.lora, model.config);
}

void add_adapter_set(PretrainedModel& model, const LoraOptions& options, int64_t set, const std::string& name) {
  add_to_layers(model, options, set, "." + name);
}

void merge_adapters(const PretrainedModel& model, const ParameterLayout& layout, float* parameters) {
  if (!model.lora) return;
  const std::vector<BoundRow> rows = bind_names(model.names, layout);
  std::map<std::string, const BoundRow*> by_tensor;
  for (const BoundRow& row : rows) by_tensor[row.row->tensor] = &row;
  const auto scale = static_cast<float>(model.lora->scale());
  for (const BoundRow& a : rows) {
    const std::string& name = a.row->tensor;
    if (a.row->role != TensorRole::kAdapter || !name.ends_with(".lora_A.weight")) continue;
    const std::string module = without(name, ".lora_A.weight");
    const BoundRow &b = *by_tensor.at(module + ".lora_B.weight"), &weight = *by_tensor.at(module + kWeight);
    const int64_t rank = a.shape[0], in = a.shape[1], out = b.shape[0];
    std::vector<double> sum(in);
    for (int64_t row = 0; row < out; ++row) {
      std::ranges::fill(sum, 0);
      for (int64_t r = 0; r < rank; ++r)
        for (int64_t i = 0; i < in; ++i)
          sum[i] += static_cast<double>(parameters[b.offset + row * rank + r]) * parameters[a.offset + r * in + i];
      for (int64_t i = 0; i < in; ++i) parameters[weight.offset + row * in + i] += scale * static_cast<float>(sum[i]);
    }
  }
}
}  // namespace linnet
