// How to read and write the folders of a family of models: one Family per "model_type" of config.json. Similar families
// share a file, which families.cpp lists (docs/add_a_family.md).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "base/fail.h"
#include "models/families/fields.h"
#include "models/families/name_table.h"
#include "models/nn/module.h"

namespace linnet {
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
const Family& find_family(const std::string& model_type);
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
