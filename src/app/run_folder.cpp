#include "app/run_folder.h"

#include "base/error.h"

namespace linnet {

Config RunFolder::load_config() const {
  if (!file_exists(path_)) fail_user("there is no run folder '" + path_ + "'");
  if (!has_config())
    fail_user("'" + path_ + "' is not a run folder: it has no config.toml (nor a model's config.json)");
  const Config config = linnet::load_config(config_path());
  try {
    validate(config);
  } catch (const Error& error) {  // edited by hand since: say where
    throw Error(error.kind(), config_path() + ": " + error.what());
  }
  return config;
}

void RunFolder::lock() {
  make_directories(path_);
  lock_.emplace(path_);
}

void check_resumable(const Config& saved, const Config& wanted, const std::string& folder) {
  std::string fixed;
  for (const std::string& key : changed_keys(saved, wanted))
    if (!may_change_on_resume(key)) fixed += (fixed.empty() ? "" : ", ") + key;
  if (!fixed.empty())
    fail_user("run folder '" + folder + "' was made with another configuration; --resume cannot change: " + fixed);
}

}  // namespace linnet
