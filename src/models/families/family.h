// How to read and write the folders of a family of models: one Family per "model_type" of config.json, with the names
// of its tensors. Similar families share a file, which families.cpp lists (docs/add_a_family.md).
#pragma once
#include <map>
#include "base/fail.h"
#include "models/families/fields.h"
#include "models/nn/module.h"

namespace linnet {
enum class TensorForm {
  kSame,
  kTransposed,     // [in, out] in the file, [out, in] here: GPT-2's Conv1D
  kOneRow,         // [1, n] in the file, [n] here: Marian's final_logits_bias
  kByHeads,        // [heads, 3, size, ...] in the file, [3, heads, size, ...] here: GPT-NeoX
  kChannelsFirst,  // [out, in, height, width] in the file, [out, height, width, in] here: filters
};

enum class TensorRole {
  kRequired,
  kHead,      // of a task: if missing, it keeps its initial values and is listed as new
  kOptional,  // of no task: if missing, it keeps its initial values and is not written
  kAdapter,   // of a LoRA adapter, in its own files and merged into a weight's (models/families/lora.h)
  kCopy,      // of a tied weight: optional in a file, equal to the parameter that another row reads
  kConstant,  // no parameter: [rows] times `constant` in readable files (norms without affine)
};

struct NameRow {
  std::string tensor;     // in files
  std::string parameter;  // of ours
  TensorForm form = TensorForm::kSame;
  TensorRole role = TensorRole::kRequired;
  // The tensor is rows [first_row, first_row + rows) of the parameter; rows 0: all. Rows of the parameter that no
  // tensor covers (a padded vocabulary) are an error.
  int64_t first_row = 0, rows = 0;
  float constant = 0;
  int64_t heads = 0;  // of kByHeads
};

// A layer with weight and bias, or one parameter.
struct NamePattern {
  std::string ours;    // "tokens", "head.bias", "layers.*.norm1": '*' is the layer's number
  std::string theirs;  // in files; with spaces: consecutive rows of ours; '#': of each expert
  TensorForm form = TensorForm::kSame;
  // kCopy: only if no other tensor has that name. kConstant: a norm's weight and bias that the model lacks.
  TensorRole role = TensorRole::kRequired;
};
using NamePatterns = std::vector<NamePattern>;
// `patterns`, with those of `own` replacing others of the same parameter.
NamePatterns with(NamePatterns patterns, const NamePatterns& own);
// Expands '^' in file names to `prefix`, and "*." to the layers' beginnings.
NamePatterns in_full(
    NamePatterns patterns, const std::string& prefix, const std::string& our_layers, const std::string& their_layers);

// What parameter shapes do not tell.
struct NameSizes {
  int64_t query_width = 0;   // rows of the first of three tensors; 0: as the others
  int64_t heads = 0;         // of kByHeads
  int64_t width = 0;         // of kConstant
  int64_t experts = 0;       // what '#' stands for
  int64_t group_layers = 1;  // if `theirs` has two '*': layers per number of the first
};

// Maps a family's tensor names in files to parameters, in both directions, by patterns:
//   NameTable table{.prefix = "transformer."};
//   table.add(module, {{"tokens", "transformer.wte"},
//                      {"layers.*.self_attn.in_proj", "transformer.h.*.attn.c_attn", TensorForm::kTransposed}});
struct NameTable {
  // Files have it before all names or none, e.g. "transformer."; it is written.
  std::string prefix;
  std::vector<NameRow> rows;
  // Endings in old files: {".gamma", ".weight"} reads x.gamma as x.weight. Saved with the new name.
  std::vector<std::pair<std::string, std::string>> old_endings;
  // Beginnings likewise: {"language_model.model.", "model."} reads the text part of a model of texts and pictures.
  std::vector<std::pair<std::string, std::string>> old_beginnings;
  // Patterns ('*': any characters) over names without the prefix. `computed`: buffers that the model computes itself,
  // not read and not written. `other_heads`: parts of the same family that this architecture does not have; not read,
  // not written, listed as unused.
  std::vector<std::string> computed, other_heads;
  // Folders within the model's whose files' tensors these rows name, too: "2_Dense/linear.weight".
  std::vector<std::string> folders;

  std::string current(const std::string& name) const;  // without an old beginning
  void add(const std::string& tensor, const std::string& parameter, TensorForm form = TensorForm::kSame,
      TensorRole role = TensorRole::kRequired);
  // The tensors of what the module has of these patterns, one layer after another.
  void add(const Module& module, const NamePatterns& patterns, const NameSizes& sizes = {});

 private:
  void add_layer(const std::string& ours, const std::vector<std::string>& theirs, const NamePattern& pattern,
      const std::map<std::string, Shape>& shapes, const NameSizes& sizes);
};

enum class FamilyKind {
  kDecoder,         // a CausalModel
  kEncoder,         // a TextEncoder with a head
  kEncoderDecoder,  // an EncoderDecoder
  kImages,          // an ImageModel
};

// The output of a model.
enum class ModelHead {
  kNone,          // states, or embeddings of texts
  kTokens,        // logits of the next token, or of masked ones
  kClasses,       // logits of a whole text's or image's classes
  kTokenClasses,  // logits of each token's classes
  kSpans,         // logits of each token as the first and as the last one of an answer
};

struct Architecture {
  std::string name;  // in config.json's "architectures"
  ModelHead head;
};

struct Family {
  Family(const char* model_type, FamilyKind kind, std::vector<Architecture> architectures)
      : model_type(model_type), kind(kind), architectures(std::move(architectures)) {}
  virtual ~Family() = default;
  // A model with config.json's sizes. User error naming the key of an unsupported option.
  virtual std::unique_ptr<Module> construct(const ConfigFile& config, ModelHead head) const = 0;
  // The model's tensors by the file names of an architecture with that head.
  virtual NameTable names(const ConfigFile& config, ModelHead head, const Module& module) const = 0;

  const Architecture& architecture(ModelHead head) const;  // user error naming the family if it has none

  // Whether it takes the folder, if several families have its model_type and architecture.
  virtual bool takes(const ConfigFile&) const { return true; }

  const char* const model_type;
  const FamilyKind kind;
  const std::vector<Architecture> architectures;  // the first is for folders that name none
};

// A family whose models are made from a Config.
template <class Config> struct FamilyTable {
  const char* model_type;
  std::vector<Architecture> architectures;
  Config base = {};  // options that no key of config.json sets
  Fields<Config> fields;
  std::function<NameTable(const Config&, ModelHead, const Module&)> names = nullptr;
  const char* flag = nullptr;     // a key that is true for this family alone
  const char* own_key = nullptr;  // a key that only its folders have
};

// Models are made by make_model(config, file, head).
template <class Config, FamilyKind kKind> struct ConfiguredFamily final : Family {
  ConfiguredFamily(FamilyTable<Config> given)  // NOLINT: a table is a family
      : Family(given.model_type, kKind, given.architectures), table(std::move(given)) {}

  Config read(const ConfigFile& file) const {
    Config config = table.base;
    read_fields(table.fields, file, config);
    return config;
  }
  // For new_pretrained().
  ConfigFile write(const Config& config, ModelHead head) const {
    ConfigFile file;
    file.set("architectures", std::vector<std::string>{architecture(head).name});
    file.set("model_type", model_type);
    write_fields(table.fields, config, file);
    file.set("dtype", "float32");
    return file;
  }
  std::unique_ptr<Module> construct(const ConfigFile& file, ModelHead head) const override {
    return make_model(read(file), file, head);
  }
  NameTable names(const ConfigFile& file, ModelHead head, const Module& module) const override {
    return table.names(read(file), head, module);
  }
  bool takes(const ConfigFile& file) const override {
    return (!table.flag || file.flag(table.flag, false)) && (!table.own_key || file.has(table.own_key));
  }

  const FamilyTable<Config> table;
};

using FamilyList = std::vector<std::shared_ptr<const Family>>;

const FamilyList& families();
// User error naming the file and the known families if there is no such one.
const Family& find_family(const ConfigFile& config);
const Family& find_family(std::string_view model_type);
// The same as a DecoderFamily, an EncoderFamily...
template <class Kind, class Which> const Kind& find_family_as(const Which& which) {
  const Family& family = find_family(which);
  if (const auto* found = dynamic_cast<const Kind*>(&family)) return *found;
  fail_internal(family.model_type, " is a family of another kind");
}
std::string names_of_kind(FamilyKind kind);  // for messages: "gpt2", "llama"
// By the architecture that config.json names; empty for an unknown family or architecture.
std::optional<ModelHead> named_head(const ConfigFile& config);
}  // namespace linnet
