// Model folders in the layout of Hugging Face: config.json, model.safetensors (or shards with an index), tokenizer and
// generation files. Read, trained on, and written so that other programs read them back.
//
//   PretrainedModel model = open_pretrained("gpt2");
//   const ParameterLayout layout(*model.module);
//   load_parameters(model, layout, flat);                  // flat: layout.parameter_count() floats
//   TextDecoder& gpt = model.as<TextDecoder>();            // trace it, train it
//   save_pretrained(model, layout, flat, "gpt2-tuned");
#pragma once
#include <map>
#include <optional>
#include <string>
#include "formats/file_dtype.h"
#include "models/families/family.h"
#include "models/families/lora.h"
#include "models/nn/parameter_layout.h"

namespace linnet {

struct PretrainedModel {
  std::string folder;              // empty: made here, not read
  const Family* family = nullptr;  // which it is saved as
  std::string architecture;        // "GPT2LMHeadModel"
  ModelHead head = ModelHead::kNone;
  ConfigFile config;               // config.json
  std::unique_ptr<Module> module;  // a TextDecoder, SequenceClassifier...
  NameTable names;
  std::optional<LoraOptions> lora;  // of its adapters; empty: it has none, or several sets
  // Folders whose adapters load_parameters() reads, after the weights beside them. Several, or one with a name: sets
  // that the rows of a batch choose from (models/nn/low_rank.h).
  std::vector<AdapterFolder> adapters;

  // How the folder's files have it; save_pretrained() writes the same form.
  bool with_prefix = true;
  std::map<std::string, FileDType> dtypes;  // by tensor, as `names` calls them: of those the files have

  std::vector<std::string> fresh;   // tensors of a head the folder does not have: load_parameters() draws them
  std::vector<std::string> unused;  // tensors of other heads the folder has

  // The module as what it is. User error naming the architecture when it is something else.
  template <class T>
  T& as() const {
    if (T* module_as = dynamic_cast<T*>(module.get())) return *module_as;
    fail_type();
  }
  int64_t parameter_count() const { return module->parameter_count(); }

 private:
  [[noreturn]] void fail_type() const;
};

struct OpenOptions {
  // What to make of the folder: kClasses reads a plain BERT and adds a new head. Empty: what the folder says.
  std::optional<ModelHead> head = {};
  // The same as config.json's "architectures" calls it: "BertForSequenceClassification".
  std::string architecture = {};
  // Of a classifier; 0: what config.json says.
  int64_t labels = 0;
  // Adapters to add; empty: none. A model's parameters then include theirs, which begin as adapters that do nothing.
  std::optional<LoraOptions> lora = {};
  // Takes a folder that has config.json alone, to plan with or to describe: load_parameters() fails.
  bool may_lack_weights = false;
};

// User error for what is no model folder, with what it may be instead.
void check_model_folder(const std::string& folder);
// Reads config.json and the headers of the weights and checks every tensor's name and shape; reads no data. User errors
// of one line name the file and what is missing, extra, of another shape or not supported.
PretrainedModel open_pretrained(const std::string& folder, const OpenOptions& options = {});

// A model that no folder has: from its configuration alone (see decoder_config_file() and the like).
PretrainedModel new_pretrained(const ConfigFile& config);

// Reads the weights into a flat buffer in the order of `layout` (of model.module or a module made alike). What the
// folder does not have is drawn from `seed`. Memory beyond the buffer: the pages of one tensor.
void load_parameters(const PretrainedModel& model, const ParameterLayout& layout, const ParameterTarget& target,
                     uint64_t seed = 1);

struct SaveOptions {
  std::optional<FileDType> dtype = {};  // of all tensors; empty: as the folder had each, F32 where it had none
  uint64_t max_shard_bytes = 5'000'000'000;
  std::map<std::string, std::string> files = {};  // text by name, e.g. of a tokenizer: also written, in the same step
};

// Writes a complete folder: configuration, weights with adapters merged into them, and what the folder read had beside
// them (tokenizer files, generation_config.json, ...). The folder may be the one that was read.
void save_pretrained(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
                     const std::string& folder, const SaveOptions& options = {});

// Writes all of a folder but the weights, for weights in another format.
void save_companions(const PretrainedModel& model, const std::string& folder);

// `folder` holds a config.json with a model_type: a model folder rather than a run of ours.
bool is_pretrained_folder(const std::string& folder);

// A model folder in lines for people.
// Family, sizes, parameters, files, what is unused; ends with a newline. User errors as open_pretrained().
std::string describe_pretrained(const std::string& folder);

}  // namespace linnet
