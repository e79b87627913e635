#include "training/run/run_folder.h"
#include <fstream>
#include "base/fail.h"

namespace linnet {
namespace fs = std::filesystem;

void for_each_file(const std::string& folder, FunctionRef<void(const fs::path& path, uint64_t bytes)> use) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    if (!entry->is_regular_file(gone)) continue;
    if (const uint64_t bytes = entry->file_size(gone); !gone) use(entry->path(), bytes);
  }
}

uint64_t size_on_disk(const std::string& path) {
  std::error_code gone;
  uint64_t bytes = fs::is_regular_file(path, gone) ? fs::file_size(path, gone) : 0;
  if (gone) return 0;
  for_each_file(path, [&](const fs::path&, uint64_t of_file) { bytes += of_file; });
  return bytes;
}

bool is_training_record(std::string_view name) {
  constexpr std::string_view kRecords[] = {"training_state.safetensors", "checkpoints", "metrics.jsonl",
      "samples.jsonl", "data.json", "memory.json", "system.json", "classes.json", "profile", "anomaly.safetensors"};
  return contains(kRecords, name) || name.starts_with("events.out.") || name.ends_with(".tmp") || name.starts_with(".");
}

void copy_without_records(const std::string& from, const std::string& to, std::string_view left_out) try {
  std::vector<fs::path> files;
  uint64_t bytes = 0;
  constexpr auto kOptions = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator entry(from, kOptions), end; entry != end; ++entry)
    if (const std::string name = entry->path().filename().string(); is_training_record(name)) {
      entry.disable_recursion_pending();
    } else if (!entry->is_directory()) {
      bytes += entry->file_size();
      if (name != left_out || entry.depth() > 0) files.push_back(entry->path().lexically_relative(from));
    }
  check_free_disk(to, bytes, "'" + to + "'");
  try {
    for (const fs::path& file : files) {
      make_directories((to / file).parent_path().string());
      fs::copy_file(from / file, to / file);
    }
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(to, ignored);
    throw;
  }
} catch (const fs::filesystem_error& error) {
  fail_system("cannot copy '" + from + "' to '" + to + "': " + error.code().message());
}

Config RunFolder::load_config() const {
  if (!file_exists(path_)) fail_user("there is no run folder '", path_, "'", missing_model_hint(path_));
  if (!has_config())
    fail_user("'", path_,
        file_exists(path_ + "/config.json")
            ? "' is neither a run folder nor a model folder of the kind that is needed here; `linnet info " + path_ +
                  "` tells what it is"
            : "' is not a run folder: it has no config.toml (nor a model's config.json)" + missing_model_hint(path_));
  const Config config = linnet::load_config(config_path());
  try {
    validate(config);
  } catch (const Error& error) {  // edited by hand: say where
    throw Error(error.kind(), config_path() + ": " + error.what());
  }
  return config;
}

std::string RunFolder::best_weights() const {
  if (!file_exists(model_path()))
    fail_user("run '", path_, "' has no model.safetensors yet: training saves it at its first evaluation, after step ",
        load_config().train.eval_every, " (eval_every) or at its end");
  return model_path();
}

RunFolder::~RunFolder() {
  if (!made_ || !lock_ || in_use()) return;
  std::error_code not_empty;
  std::filesystem::remove(path_ + "/.lock", not_empty);
  if (!std::filesystem::remove(path_, not_empty)) std::ofstream(path_ + "/.lock");  // what is left is a run's
}

void RunFolder::lock() {
  made_ = !file_exists(path_);
  make_directories(path_);
  lock_.emplace(path_);
}
}  // namespace linnet
