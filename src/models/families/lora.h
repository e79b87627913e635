// LoRA adapters of model folders (models/nn/low_rank.h), and their files in PEFT's layout: adapter_config.json and
// adapter_model.safetensors, whose tensors are called "base_model.model.<module>.lora_A.weight". What stands beside the
// adapters and is trained in full, such as a new classifier, is in the same file ("modules_to_save").
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>
#include "models/families/config_file.h"

namespace linnet {

struct PretrainedModel;
class ParameterLayout;

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;  // an adapter's product is multiplied by alpha / rank
  // Names of linear layers as the family's files have them: "query", "attn.c_attn" or a longer end of the path;
  // "all-linear", which empty stands for: all but the head.
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
// The same for one of several sets: parameters and names have the set's name at their end.
void add_adapter_set(PretrainedModel& model, const LoraOptions& options, int64_t set, const std::string& name);
// Adds each adapter's product to the weight it belongs to, in the flat buffer.
void merge_adapters(const PretrainedModel& model, const ParameterLayout& layout, float* parameters);

// Reads adapter_config.json. User errors name what Linnet does not have (another kind than LoRA, biases, DoRA).
LoraOptions read_adapter_options(const std::string& folder);

// A folder of adapters beside a base. Requests choose by the name; without one they are always on.
struct AdapterFolder {
  std::string name, folder;
  bool operator==(const AdapterFolder&) const = default;
};
// The words of --adapter, each FOLDER or NAME=FOLDER. User error for two without a name or with the same one.
std::vector<AdapterFolder> parse_adapters(const std::vector<std::string>& words);
// Whether rows choose among them, because one has a name.
bool are_chosen(const std::vector<AdapterFolder>& adapters);
// Whether they were trained with a classifier of texts, which is in their files.
bool are_classifiers(const std::vector<AdapterFolder>& adapters);
// User error for adapters with names, for models whose requests cannot choose.
void refuse_names(const std::vector<AdapterFolder>& adapters);
// The adapters that a request names, as a set of LowRank; -1: none. "": those without a name, if there are any.
// `where` begins the user error for a name that there is not.
constexpr const char* kNoAdapter = "none";
int64_t find_adapter(const std::vector<AdapterFolder>& adapters, const std::string& name, const std::string& where);

struct OpenOptions;
// Opens a model folder for adapters of other folders: with them, and as what they were trained for. load_parameters()
// reads both. Without adapters it is open_pretrained(). User error for adapters that do not fit the model.
PretrainedModel open_with_adapters(const std::string& folder, const std::vector<AdapterFolder>& adapters,
                                   const OpenOptions& options);

class AdapterFile;
struct BoundRow;
struct ParameterSpec;
struct ParameterTarget;
// The files of a model's adapters. What they hold has been checked against the model.
class AdapterFiles {
 public:
  AdapterFiles(const PretrainedModel& model, const std::vector<BoundRow>& rows);
  ~AdapterFiles();
  // Reads what the files have of a parameter: adapters, and modules that were trained beside them.
  void read(const ParameterSpec& spec, float* parameters) const;

 private:
  std::vector<AdapterFile> files_;
};
// Writes a folder that PEFT reads. `load` fills a buffer with all parameters; once it has finished one that the folder
// leaves out, its memory is given back. `base`: the folder of the model that was adapted.
void save_adapters(const PretrainedModel& model, const ParameterLayout& layout,
                   const std::function<void(const ParameterTarget&)>& load, const std::string& base,
                   const std::string& folder);

}  // namespace linnet
