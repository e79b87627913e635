// LoRA adapters of model folders (models/nn/low_rank.h), in PEFT's layout: adapter_config.json and
// adapter_model.safetensors, with tensors "base_model.model.<module>.lora_A.weight" and modules trained in full
// ("modules_to_save"), such as a new classifier.
#pragma once
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include "models/families/config_file.h"

namespace linnet {
struct PretrainedModel;
class ParameterLayout;

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;  // an adapter's product is scaled by alpha / rank
  // Linear layers by the family's names: "query", "attn.c_attn", a longer path; "all-linear" or "": all but the head.
  std::vector<std::string> targets = {};
  bool rank_stabilized = false;  // alpha / sqrt(rank) instead (Kalajdzievski 2023)

  // An adapted layer. Those of a folder may have a rank and a scale of their own.
  struct Layer {
    int64_t rank;
    double scale;
    bool has_magnitude;  // DoRA's
  };
  std::map<std::string, Layer> layers = {};  // by their names in a folder; add_adapters() fills it if it is empty

  double scale() const {
    return alpha / (rank_stabilized ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
  }
};

// The options in a run's config.json, by which construct() adds adapters. Saved folders have merged weights instead.
constexpr const char* kLoraKey = "linnet_lora";
void write_lora_options(const LoraOptions& options, ConfigFile& config);
std::optional<LoraOptions> read_lora_options(const ConfigFile& config);

// Adds adapters to the target layers, and their names to the table. User error listing the layers if one has none.
void add_adapters(PretrainedModel& model, const LoraOptions& options);
// Adds each adapter's product to its weight, in the flat buffer.
void merge_adapters(const PretrainedModel& model, const ParameterLayout& layout, float* parameters);

// Reads a folder of adapters. User errors for what is not supported, such as another kind than LoRA.
LoraOptions read_adapter_options(const std::string& folder);

// A folder of adapters. Requests choose them by name; without one they are always on.
struct AdapterFolder {
  std::string name, folder;
  bool operator==(const AdapterFolder&) const = default;
};
// The words of --adapter, each FOLDER or NAME=FOLDER. User error if two have the same name or none.
std::vector<AdapterFolder> parse_adapters(const std::vector<std::string>& words);
bool are_chosen(const std::vector<AdapterFolder>& adapters);       // because one has a name
bool are_classifiers(const std::vector<AdapterFolder>& adapters);  // with one in their files
// User error for named adapters, for models whose requests cannot choose.
void refuse_names(const std::vector<AdapterFolder>& adapters);
// The requested adapters as a set of LowRank; -1: none; "": those without a name, if any. `where` begins user errors.
constexpr const char* kNoAdapter = "none";
int64_t find_adapter(const std::vector<AdapterFolder>& adapters, const std::string& name, const std::string& where);

struct OpenOptions;
// Opens a model folder for other folders' adapters, with the head they were trained for; load_parameters() reads both.
// Without adapters: open_pretrained(). User error for adapters that do not fit the model.
PretrainedModel open_with_adapters(
    const std::string& folder, const std::vector<AdapterFolder>& adapters, const OpenOptions& options);

class TensorFile;
struct BoundRow;
struct ParameterSlot;
struct ParameterTarget;
struct TensorEntry;
// The files of a model's adapters, checked against the model. An adapter of a layer that the graph computes it beside
// is a parameter; one with a magnitude (DoRA), or of a pooler or a head, is merged into the weight when that is read.
class AdapterFiles {
 public:
  AdapterFiles(const PretrainedModel& model, const std::vector<BoundRow>& rows);
  ~AdapterFiles();
  // Reads what the files have of a parameter: adapters, modules trained beside them, and what is merged.
  void read(const ParameterLayout& layout, const ParameterSlot& slot, float* parameters) const;

 private:
  // A tensor of a file in the place of a row of the name table, times `factor`.
  struct Placed {
    const BoundRow* bound;
    const TensorEntry* entry;
    float factor;
  };
  struct Merged {
    const BoundRow* weight;
    const TensorEntry *a, *b, *magnitude;  // the last may be null
    double scale;
  };
  void add(const PretrainedModel& model, const std::vector<BoundRow>& rows, const AdapterFolder& adapter);

  std::vector<std::unique_ptr<const TensorFile>> files_;
  std::vector<Placed> placed_;
  std::vector<Merged> merged_;
};
// Writes a folder that PEFT reads. `load` fills a buffer with all parameters; the memory of finished ones that the
// folder leaves out is freed. `base`: the adapted model's folder.
void save_adapters(const PretrainedModel& model, const ParameterLayout& layout,
    const std::function<void(const ParameterTarget&)>& load, const std::string& base, const std::string& folder);
}  // namespace linnet
