// What there is to know of a family of models to read its folders: one Family per value of config.json's "model_type".
// A new family is a file of its own with one constant, declared here and listed in families.cpp (and, if it is of
// texts, in api/runtime/left_out.cpp).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/nn/module.h"
#include "models/families/config_file.h"
#include "models/families/name_table.h"

namespace linnet {

struct Family {
  const char* model_type;
  // Of config.json's "architectures": what construct() and names() know. The first is for folders that name none.
  std::vector<const char*> architectures;
  // The model, with config.json's sizes. An option the model has not is a user error naming the key.
  std::unique_ptr<Module> (*construct)(const ConfigFile& config, const std::string& architecture);
  // Its tensors under the names of that architecture's files.
  NameTable (*names)(const ConfigFile& config, const std::string& architecture);
};

extern const Family kGpt2Family, kBertFamily, kLlamaFamily, kMistralFamily, kQwen2Family, kT5Family, kMarianFamily,
    kVitFamily;

const std::vector<const Family*>& families();
// User error naming the file when there is no such family, with those there are.
const Family& find_family(const ConfigFile& config);

}  // namespace linnet
