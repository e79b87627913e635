// The files of a run.
//
//   config.toml                  the effective configuration
//   tokenizer.*                  or source.* and target.*
//   model.safetensors            the best weights so far, or their moving average where that is better
//   training_state.safetensors   everything --resume needs
//   frozen.safetensors           weights in a storage of their own that nothing changes (models/nn/model_file.h)
//   metrics.jsonl                one JSON object a line
//   data.json                    what the data looked like
//   memory.json, system.json     the planned memory, and what trains it (run_record.h)
//   samples.jsonl                what evaluations let the model write
//   classes.json                 of classifiers: the best evaluation's scores by class (data/metrics/class_report.h)
//   profile/                     traces of steps (engine/profile/step_profiler.h), if they were asked for
//   anomaly.safetensors          a step that was not finite (run_reporter.h), the same
//   events.out.tfevents.*        for TensorBoard, the same
#pragma once
#include <filesystem>
#include "base/files.h"
#include "base/functions.h"
#include "config/config.h"

namespace linnet {
// Calls use(path, bytes) for each file below a folder, as far as they can be read; other processes may remove some.
void for_each_file(const std::string& folder, FunctionRef<void(const std::filesystem::path& path, uint64_t bytes)> use);
// The size of a file, or of all files below a folder; 0 if there is none.
uint64_t size_on_disk(const std::string& path);

// Whether a file or folder of a run, by its name, records or resumes its training. Others make up the model.
bool is_training_record(std::string_view name);
// Copies a folder without these and without its file `left_out`, for which there is room, too. Leaves nothing if it
// fails.
void copy_without_records(const std::string& from, const std::string& to, std::string_view left_out = "");

class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  ~RunFolder();  // removes an empty folder that lock() made: a refused run leaves nothing

  const std::string& path() const { return path_; }
  std::string config_path() const { return path_ + "/config.toml"; }
  std::string model_path() const { return path_ + "/model.safetensors"; }
  std::string best_weights() const;  // model_path(); user error if there is none yet
  std::string state_path() const { return path_ + "/training_state.safetensors"; }
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
  std::string classes_path() const { return path_ + "/classes.json"; }

  bool has_config() const { return file_exists(config_path()); }
  bool has_state() const { return file_exists(state_path()); }
  // Any file that a new run would replace.
  bool in_use() const {
    return has_config() || has_state() || file_exists(model_path()) || file_exists(metrics_path());
  }
  Config load_config() const;  // user error if the folder is not a run
  void lock();                 // user error if another process trains here
  // User error if lock()'s folder is not there any more, or another.
  void check_lock() const {
    if (lock_) lock_->check();
  }

 private:
  std::string path_;
  std::optional<FolderLock> lock_;
  bool made_ = false;  // by lock()
};
}  // namespace linnet
