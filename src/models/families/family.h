// What there is to know of a family of models to read and write its folders: one Family per value of config.json's
// "model_type". Families that are alike share a file, which families.cpp lists (docs/add_a_family.md).
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
  kEncoder,         // a TextEncoder with what stands on it
  kEncoderDecoder,  // an EncoderDecoder
  kImages,          // an ImageModel
};

// What stands on the layers, and so what a model is for.
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
  // The model, with config.json's sizes. An option the model has not is a user error naming the key.
  virtual std::unique_ptr<Module> construct(const ConfigFile& config, ModelHead head) const = 0;
  // The tensors of such a model under the names of the files of an architecture with that head.
  virtual NameTable names(const ConfigFile& config, ModelHead head, const Module& module) const = 0;

  // The one with that head. User error naming the family when it has none.
  const Architecture& architecture(ModelHead head) const;

  // Whether a folder of this model_type and one of the architectures is of this family, where several have both.
  virtual bool takes(const ConfigFile&) const { return true; }

  const char* const model_type;
  const FamilyKind kind;
  const std::vector<Architecture> architectures;  // the first is for folders that name none
};

// All that there is to say of a family whose models are made of a Config.
template <class Config>
struct FamilyTable {
  const char* model_type;
  std::vector<Architecture> architectures;
  Config base = {};  // the options that no key of config.json says
  Fields<Config> fields;
  std::function<NameTable(const Config&, ModelHead, const Module&)> names = nullptr;
  const char* flag = nullptr;     // a key that is true of this family alone
  const char* own_key = nullptr;  // a key that only its folders have
};

// make_model(config, file, head) makes its models.
template <class Config, FamilyKind kKind>
struct ConfiguredFamily final : Family {
  ConfiguredFamily(FamilyTable<Config> given)  // NOLINT: a table is a family
      : Family(given.model_type, kKind, given.architectures), table(std::move(given)) {}

  Config read(const ConfigFile& file) const {
    Config config = table.base;
    read_fields(table.fields, file, config);
    return config;
  }
  // What new_pretrained() takes for a model that was made here.
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
// User error naming the file when there is no such family, with those there are.
const Family& find_family(const ConfigFile& config);
const Family& find_family(const std::string& model_type);
// The same as what it is: a DecoderFamily, an EncoderFamily...
template <class Kind, class Which>
const Kind& find_family_as(const Which& which) {
  const Family& family = find_family(which);
  if (const auto* found = dynamic_cast<const Kind*>(&family)) return *found;
  fail_internal(family.model_type, " is a family of another kind");
}
// The families of a kind, for messages: "gpt2", "llama".
std::string names_of_kind(FamilyKind kind);
// The head of the architecture that config.json names; empty where family or architecture is not known here.
std::optional<ModelHead> named_head(const ConfigFile& config);

}  // namespace linnet
