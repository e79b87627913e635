// The keys that name files and folders.
#include <filesystem>

#include "config/config.h"
#include "config/config_keys.h"

namespace linnet {

std::string data_path(const DataConfig& data, const std::string& path) {
  if (path.empty() || data.data_dir.empty()) return path;
  return (std::filesystem::path(data.data_dir) / path).string();  // an absolute `path` stays as it is
}

std::vector<std::string*> data_files(Config& config) {
  DataConfig& d = config.data;
  return {&d.train_source, &d.train_target, &d.valid_source, &d.valid_target, &d.test_source, &d.test_target,
          &d.train_tsv,    &d.valid_tsv,    &d.test_tsv,     &d.text,         &d.valid_text,  &d.test_text};
}

std::vector<std::string> data_file_keys() {
  Config scratch;
  std::vector<std::string> names;
  for (const std::string* file : data_files(scratch))
    for (const ConfigKey& key : config_keys())
      if (key.field(scratch) == FieldPointer(const_cast<std::string*>(file))) names.emplace_back(key.name);
  return names;
}

Config with_absolute_paths(Config config) {
  const auto make_absolute = [](std::string& path) {
    if (!path.empty()) path = std::filesystem::absolute(path).lexically_normal().string();
  };
  for (std::string* folder : {&config.data.data_dir, &config.data.tokenizer_dir, &config.model.from})
    make_absolute(*folder);
  if (config.data.data_dir.empty())  // otherwise they are below it
    for (std::string* file : data_files(config)) make_absolute(*file);
  return config;
}

}  // namespace linnet
