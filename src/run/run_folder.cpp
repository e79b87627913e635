#include "run/run_folder.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "run/data_fingerprint.h"

namespace linnet {

Config RunFolder::load_config() const {
  if (!file_exists(path_)) fail_user("there is no run folder '" + path_ + "'");
  if (!has_config() && file_exists(path_ + "/config.json"))
    fail_user("'" + path_ +
              "' is neither a run folder nor a model folder of the kind that is needed here; `linnet info " + path_ +
              "` tells what it is");
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

std::string RunFolder::best_weights() const {
  if (!file_exists(model_path()))
    fail_user("run '" + path_ +
              "' has no model.safetensors yet: training saves it at its first evaluation, after step " +
              std::to_string(load_config().train.eval_every) + " (eval_every) or at its end");
  return model_path();
}

RunFolder::~RunFolder() {
  if (!made_ || !lock_ || in_use()) return;
  std::error_code not_empty;
  std::filesystem::remove(path_ + "/.lock", not_empty);
  std::filesystem::remove(path_, not_empty);
}

void RunFolder::lock() {
  made_ = !file_exists(path_);
  make_directories(path_);
  lock_.emplace(path_);
}

namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool is_path_of_data(const std::string& key) {
  return key == "data_dir" || std::ranges::count(data_file_keys(), key) > 0;
}

}  // namespace

void check_resumable(const Config& saved, const Config& wanted, const std::string& folder) {
  const DataFingerprint before = DataFingerprint::load(folder), now = DataFingerprint::of(wanted);
  const std::vector<std::string> changes = before.changes(now);
  // The same data in another place, all of them.
  const bool moved = !before.entries.empty() && before.entries.size() == now.entries.size() && changes.empty();
  std::vector<std::string> fixed;
  bool same_paths = true;
  for (const std::string& key : changed_keys(with_absolute_paths(saved), wanted)) {
    if (is_path_of_data(key)) same_paths = false;
    if (!may_change_on_resume(key) && !(moved && is_path_of_data(key))) fixed.push_back(key);
  }
  if (!fixed.empty())
    fail_user("run folder '" + folder + "' was made with another configuration; --resume cannot change: " +
              joined(fixed) + " (`linnet train " + folder + " --resume` goes on as it began)");
  if (same_paths && !changes.empty())
    log_warning("the data have changed since the run began (" + joined(changes) +
                "): it goes on with what is there now");
}

}  // namespace linnet
