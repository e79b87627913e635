// The files of an adapter, as PEFT writes and reads them: github.com/huggingface/peft, src/peft/utils/save_and_load.py.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "io/safetensors.h"
#include "pretrained/binding.h"
#include "pretrained/lora.h"
#include "pretrained/pretrained.h"

namespace linnet {
namespace {

constexpr const char *kConfigName = "adapter_config.json", *kWeightsName = "adapter_model.safetensors";
constexpr const char* kBase = "base_model.model.";

std::string path_in(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

// These architectures' modules have no name in front, though the family's tables do.
bool is_bare(const std::string& architecture) { return architecture == "BertModel" || architecture == "GPT2Model"; }

std::string peft_name(const PretrainedModel& model, const std::string& tensor) {
  const std::string& prefix = model.names.prefix;
  const bool bare = is_bare(model.architecture) && tensor.starts_with(prefix);
  return kBase + (bare ? tensor.substr(prefix.size()) : tensor);
}

// The adapters, and heads that are trained beside them: those of a classifier, which begin with what was drawn.
bool is_in_file(const PretrainedModel& model, const NameRow& row) {
  if (row.role == TensorRole::kAdapter) return true;
  return row.role == TensorRole::kHead && model.architecture.ends_with("ForSequenceClassification");
}

const char* task_type(const std::string& architecture) {
  if (architecture.ends_with("ForSequenceClassification")) return "SEQ_CLS";
  if (architecture.ends_with("ForConditionalGeneration") || architecture.ends_with("MTModel")) return "SEQ_2_SEQ_LM";
  if (architecture.ends_with("ForCausalLM") || architecture.ends_with("LMHeadModel")) return "CAUSAL_LM";
  return nullptr;
}

// Of the table, but what of a family is transposed in its files.
bool any_transposed(const PretrainedModel& model) {
  return std::ranges::any_of(model.names.rows, [](const NameRow& row) { return row.form == TensorForm::kTransposed; });
}

ConfigFile adapter_config(const PretrainedModel& model, const std::string& base) {
  const LoraOptions& lora = *model.lora;
  std::vector<std::string> heads;
  for (const NameRow& row : model.names.rows)
    if (row.role == TensorRole::kHead && is_in_file(model, row) && row.tensor.ends_with(".weight")) {
      std::string module = row.tensor.substr(0, row.tensor.size() - 7);
      if (module.starts_with(model.names.prefix)) module = module.substr(model.names.prefix.size());
      heads.push_back(module);
    }
  ConfigFile config;
  config.set("peft_type", "LORA");
  if (const char* type = task_type(model.architecture))
    config.set("task_type", type);
  else
    config.set_null("task_type");
  config.set("base_model_name_or_path", base);
  config.set("r", lora.rank);
  config.set("lora_alpha", lora.alpha);
  config.set("lora_dropout", 0.0);
  config.set("use_rslora", lora.rank_stabilized);
  config.set("bias", "none");
  config.set("fan_in_fan_out", any_transposed(model));
  if (lora.targets == std::vector<std::string>{"all-linear"})
    config.set("target_modules", "all-linear");
  else
    config.set("target_modules", lora.targets);
  if (heads.empty())
    config.set_null("modules_to_save");
  else
    config.set("modules_to_save", heads);
  config.set("inference_mode", true);
  return config;
}

}  // namespace

LoraOptions read_adapter_options(const std::string& folder) {
  if (!file_exists(folder)) fail_user("there is no folder '" + folder + "'");
  const ConfigFile config(path_in(folder, kConfigName));
  config.choice("peft_type", {"LORA"});
  config.choice("bias", {"none"});
  config.require_flag("use_dora", false);
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    if (config.count(key) > 0) config.fail("\"" + std::string(key) + "\" is not supported: one rank and alpha for all");
  for (const char* key : {"layers_to_transform", "layer_replication", "trainable_token_indices", "target_parameters"})
    if (config.has(key)) config.fail("\"" + std::string(key) + "\" is not supported");
  LoraOptions options{.rank = config.size("r", 8), .alpha = config.number("lora_alpha", 8)};
  options.rank_stabilized = config.flag("use_rslora", false);
  if (config.is_text("target_modules")) {
    if (config.text("target_modules") != "all-linear")
      config.fail("\"target_modules\" is a pattern; Linnet reads a list of names, or \"all-linear\"");
    options.targets = {"all-linear"};
  } else {
    options.targets = config.texts("target_modules");
  }
  return options;
}

PretrainedModel open_with_adapters(const std::string& folder, const std::string& adapters, const OpenOptions& options) {
  OpenOptions wanted = options;
  wanted.lora = read_adapter_options(adapters);
  const ConfigFile config(path_in(adapters, kConfigName));
  if (wanted.architecture.empty() && config.text("task_type", "") == "SEQ_CLS") {
    for (const char* architecture : find_family(ConfigFile(path_in(folder, "config.json"))).architectures)
      if (std::string_view(architecture).ends_with("ForSequenceClassification")) wanted.architecture = architecture;
    const SafetensorsFile file(path_in(adapters, kWeightsName), SafetensorsTypes::kAll);
    if (const SafetensorsEntry* head = file.find(std::string(kBase) + "classifier.weight"))
      wanted.labels = head->type.shape.rank() == 2 ? head->type.shape[0] : 0;
  }
  return open_pretrained(folder, wanted);
}

void load_adapters(const PretrainedModel& model, const ParameterLayout& layout, const std::string& folder,
                   float* parameters) {
  const SafetensorsFile file(path_in(folder, kWeightsName), SafetensorsTypes::kAll);
  const std::vector<BoundRow> rows = bind_names(model.names, layout);
  size_t used = 0;
  for (const BoundRow& bound : rows) {
    if (!is_in_file(model, *bound.row)) continue;
    const std::string name = peft_name(model, bound.row->tensor);
    const SafetensorsEntry* entry = file.find(name);
    if (!entry && bound.row->role == TensorRole::kHead) continue;
    if (!entry) fail_user("'" + file.path() + "': tensor " + name + " is missing");
    if (entry->type.shape != bound.shape || !is_float(entry->dtype))
      fail_user("'" + file.path() + "': tensor " + name + " is " + entry->text() + ", expected floats of the shape " +
                bound.shape.text());
    read_tensor(bound, entry->dtype, entry->data, parameters);
    ++used;
  }
  if (used == file.entries().size()) return;
  for (const SafetensorsEntry& entry : file.entries())
    if (std::ranges::none_of(rows, [&](const BoundRow& bound) {
          return is_in_file(model, *bound.row) && peft_name(model, bound.row->tensor) == entry.name;
        }))
      fail_user("'" + file.path() + "': the model has no place for tensor " + entry.name);
}

void save_adapters(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
                   const std::string& base, const std::string& folder) {
  if (!model.lora) fail_user("the run has no adapters: it was not trained with lora.rank");
  const std::vector<BoundRow> rows = bind_names(model.names, layout);
  std::vector<SafetensorsTensor> tensors;
  for (const BoundRow& bound : rows)
    if (is_in_file(model, *bound.row))
      tensors.push_back({peft_name(model, bound.row->tensor), {DType::kF32, bound.shape}, parameters + bound.offset});
  make_directories(folder);
  adapter_config(model, base).save(path_in(folder, kConfigName));
  save_safetensors(path_in(folder, kWeightsName), tensors, {{"format", "pt"}});
}

}  // namespace linnet
