// LoRA adapters of model folders (nn/low_rank.h), and their files in PEFT's layout: adapter_config.json and
// adapter_model.safetensors, whose tensors are called "base_model.model.<module>.lora_A.weight". What stands beside the
// adapters and is trained in full, such as a new classifier, is in the same file ("modules_to_save").
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "pretrained/config_file.h"

namespace linnet {

struct PretrainedModel;
class ParameterLayout;

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;  // an adapter's product is multiplied by alpha / rank
  // Names of linear layers as the family's files have them: "query", "attn.c_attn" or a longer end of the path;
  // "all-linear": all but the head. Empty: the queries and values of attention.
  std::vector<std::string> targets = {};
  bool rank_stabilized = false;  // alpha / sqrt(rank) instead (Kalajdzievski 2023)

  double scale() const;
};

// The options as a key of config.json, which a run keeps: construct() adds adapters where it finds them. A folder that
// is saved has the adapters merged into its weights, and not the key.
constexpr const char* kLoraKey = "linnet_lora";
void write_lora_options(const LoraOptions& options, ConfigFile& config);
std::optional<LoraOptions> read_lora_options(const ConfigFile& config);

// Adds adapters to the linear layers that the targets name, and their names to the model's table. User error for a
// target that no layer has, with the names there are.
void add_adapters(PretrainedModel& model, const LoraOptions& options);
// Adds each adapter's product to the weight it belongs to, in the flat buffer.
void merge_adapters(const PretrainedModel& model, const ParameterLayout& layout, float* parameters);

// Reads adapter_config.json. User errors name what Linnet does not have (another kind than LoRA, biases, DoRA).
LoraOptions read_adapter_options(const std::string& folder);
struct OpenOptions;
// Opens a model folder for the adapters of another: with them, and as what they were trained for.
PretrainedModel open_with_adapters(const std::string& folder, const std::string& adapters, const OpenOptions& options);
// Reads the adapters, and the modules saved beside them, into the flat buffer of a model with adapters of those
// options.
void load_adapters(const PretrainedModel& model, const ParameterLayout& layout, const std::string& folder,
                   float* parameters);
// Writes a folder that PEFT reads. `base`: the folder of the model that was adapted.
void save_adapters(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
                   const std::string& base, const std::string& folder);

}  // namespace linnet
