// Model folders in Hugging Face's layout: config.json, model.safetensors (or shards with an index), tokenizer and
// generation files. They are read, trained on, and written for other programs too.
//
//   PretrainedModel model = open_pretrained("gpt2");
//   const ParameterLayout layout(*model.module);
//   load_parameters(model, layout, flat);                  // flat: layout.parameter_count() floats
//   TextDecoder& gpt = model.as<TextDecoder>();            // trace it, train it
//   save_pretrained(model, layout, flat, "gpt2-tuned");
#pragma once
#include "formats/tensor_file.h"
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
  std::optional<LoraOptions> lora;  // options of its adapters; empty: none, or several sets
  // Adapter folders that load_parameters() reads after the weights. Several, or one with a name: sets that rows of a
  // batch choose from (models/nn/low_rank.h).
  std::vector<AdapterFolder> adapters;
  std::map<std::string, Shape> replaced;  // what those folders have whole, by the tensors of `names`

  // The form of the folder's files, which save_pretrained() writes too.
  bool with_prefix = true;
  std::map<std::string, FileDType> dtypes;  // by tensor, as in `names`, of those in the files

  std::vector<std::string> fresh;   // head tensors that the folder lacks: load_parameters() draws them
  std::vector<std::string> unused;  // tensors of other heads the folder has

  // User error naming the architecture if the module is something else.
  template <class T> T& as() const {
    if (T* module_as = dynamic_cast<T*>(module.get())) return *module_as;
    fail_type();
  }
  int64_t parameter_count() const { return module->parameter_count(); }

 private:
  [[noreturn]] void fail_type() const;
};

struct OpenOptions {
  // kClasses reads a plain BERT and adds a new head. Empty: what the folder says.
  std::optional<ModelHead> head = {};
  // The same by the name in config.json's "architectures": "BertForSequenceClassification".
  std::string architecture = {};
  int64_t labels = 0;  // of a classifier; 0: as in config.json
  // Adapters to add to the parameters; they begin without effect. Empty: none.
  std::optional<LoraOptions> lora = {};
  // Tensors that an adapters' folder has whole. Embeddings among them say how many tokens there are.
  std::map<std::string, Shape> replaced = {};
  // Accepts a folder with config.json alone, to plan with or to describe: load_parameters() fails.
  bool may_lack_weights = false;
};

// User error if it is no model folder, with what it may be instead.
void check_model_folder(const std::string& folder);
// Reads config.json and the weights' headers, and checks every tensor's name and shape; reads no data. User errors of
// one line name the file and what is missing, extra, of another shape or not supported.
PretrainedModel open_pretrained(const std::string& folder, const OpenOptions& options = {});

// A model from its configuration alone (see decoder_config_file() and the like).
PretrainedModel new_pretrained(const ConfigFile& config);

// Reads the weights into a flat buffer in the order of `layout` (of model.module or one made alike). Missing ones are
// drawn from `seed`. Memory beyond the buffer: the pages of one tensor.
void load_parameters(
    const PretrainedModel& model, const ParameterLayout& layout, const ParameterTarget& target, uint64_t seed = 1);

struct SaveOptions {
  std::optional<FileDType> dtype = {};  // of all tensors; empty: as in the folder, F32 for new ones
  uint64_t max_shard_bytes = 5'000'000'000;
  std::map<std::string, std::string> files = {};  // text by name, e.g. of a tokenizer, written too
};

// Writes a complete folder: configuration, weights with merged adapters, and other files of the folder that was read
// (tokenizer, generation_config.json, ...). It may be the same folder.
void save_pretrained(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
    const std::string& folder, const SaveOptions& options = {});

// Writes all of a folder but the weights.
void save_companions(const PretrainedModel& model, const std::string& folder);

// Whether its config.json has a model_type: a model folder, not a run.
bool is_pretrained_folder(const std::string& folder);

// Family, sizes, parameters, files and unused tensors in lines for people. User errors as open_pretrained().
std::string describe_pretrained(const std::string& folder);
}  // namespace linnet
