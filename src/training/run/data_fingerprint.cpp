#include "training/run/data_fingerprint.h"
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "training/run/run_folder.h"
#include "training/trainer/checkpoint.h"

namespace linnet {

namespace {

namespace fs = std::filesystem;
constexpr const char* kFile = "/data.json";
constexpr uint64_t kBlock = 4096, kBlocks = 64;

std::string sampled_checksum(const std::string& path, uint64_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string block(kBlock, '\0');
  uint64_t hash = fnv1a("");
  const uint64_t last = bytes > kBlock ? bytes - kBlock : 0;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    file.clear();
    file.seekg(static_cast<std::streamoff>(last / (kBlocks - 1) * i + last % (kBlocks - 1) * i / (kBlocks - 1)));
    file.read(block.data(), static_cast<std::streamsize>(kBlock));
    hash = fnv1a(std::string_view(block.data(), static_cast<size_t>(file.gcount())), hash);
    if (last == 0) break;
  }
  return fmt::format("{:016x}", hash);
}

DataFingerprint::Entry of_folder(const std::string& key, const std::string& path) {
  std::vector<std::string> files;
  uint64_t bytes = 0;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(path, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code unreadable;
    if (!entry->is_regular_file(unreadable)) continue;
    const uint64_t size = entry->file_size(unreadable);
    bytes += size;
    files.push_back(entry->path().lexically_relative(path).string() + "\n" + std::to_string(size) + "\n");
  }
  std::ranges::sort(files);
  uint64_t hash = fnv1a("");
  for (const std::string& file : files) hash = fnv1a(file, hash);
  return {key, bytes, fmt::format("{:016x}", hash)};
}

bool is_path_of_data(const std::string& key) {
  return key == "data_dir" || std::ranges::count(data_file_keys(), key) > 0;
}

}  // namespace

DataFingerprint DataFingerprint::of(const Config& config) {
  DataFingerprint fingerprint;
  std::error_code ignored;
  Config copy = config;
  const std::vector<std::string*> paths = data_files(copy);
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string path = data_path(config.data, *paths[i]);
    if (!path.empty() && fs::is_directory(path, ignored))
      fingerprint.entries.push_back(of_folder(data_file_keys()[i], path));
    if (path.empty() || !fs::is_regular_file(path, ignored)) continue;
    const uint64_t bytes = fs::file_size(path, ignored);
    fingerprint.entries.push_back({data_file_keys()[i], bytes, sampled_checksum(path, bytes)});
  }
  if (task_kind(config) == TaskKind::kImages && fs::is_directory(config.data.data_dir, ignored))
    fingerprint.entries.push_back(of_folder("data_dir", config.data.data_dir));
  return fingerprint;
}

DataFingerprint DataFingerprint::load(const std::string& folder) {
  DataFingerprint fingerprint;
  const std::string path = folder + kFile;
  if (!file_exists(path)) return fingerprint;
  try {
    Json json = Json::parse(read_file(path), JsonLimits::settings());
    json.sort_keys();
    for (const auto& [key, value] : json.items())
      fingerprint.entries.push_back({key, value.at("bytes").get<uint64_t>(), value.at("checksum").text()});
  } catch (const JsonError& error) {
    fail_user(path + ": not what a run leaves there: " + error.what());
  }
  return fingerprint;
}

void DataFingerprint::save(const std::string& folder) const {
  Json json = Json::object();
  for (const Entry& entry : entries) json[entry.key] = {{"bytes", entry.bytes}, {"checksum", entry.checksum}};
  write_file_atomically(folder + kFile, json.dump(1) + "\n");
}

const DataFingerprint::Entry* DataFingerprint::find(const std::string& key) const {
  const auto found = std::ranges::find(entries, key, &Entry::key);
  return found == entries.end() ? nullptr : &*found;
}

std::vector<std::string> DataFingerprint::changes(const DataFingerprint& now) const {
  std::vector<std::string> keys;
  for (const Entry& entry : entries)
    if (const Entry* present = now.find(entry.key); present && !(*present == entry)) keys.push_back(entry.key);
  return keys;
}

std::string open_folder(TrainRequest& request, RunFolder& folder) {
  if (folder.in_use()) {
    if (!request.resume)
      fail_user("run folder '" + folder.path() + "' exists already; --resume goes on with it, --run DIR names another");
    Config saved = folder.load_config();
    if (saved.train.data_shards == 0) saved.train.data_shards = 1;  // made before runs were divided
    if (request.config.train.data_shards == 0) request.config.train.data_shards = saved.train.data_shards;
    // What a run began with says how far in the data it is: another limit of memory does not cut its batches anew.
    if (saved.train.micro_batches == 0) saved.train.micro_batches = 1;
    if (request.config.train.micro_batches == 0) request.config.train.micro_batches = saved.train.micro_batches;
    for (const std::string& key : keep_saved_values(saved, request.config))
      log_info("resuming with the run's own " + key);
    check_resumable(saved, request.config, folder.path());
    // As `linnet average` makes it. A new run in it would write over the weights.
    if (!folder.has_state() && file_exists(folder.model_path()) && !file_exists(folder.metrics_path()))
      fail_user("'" + folder.path() + "' has weights and no state of training to go on with; --init " + folder.path() +
                " --run DIR begins a new run with them");
    folder.lock();
    if (folder.has_state()) return folder.path();
  } else {
    if (request.resume && !file_exists(folder.path()))
      log_warning("there is no run folder '" + folder.path() + "' to go on with: a new run begins");
    folder.lock();
  }
  if (request.init.empty()) return "";
  if (!(with_absolute_paths(RunFolder(request.init).load_config()).model == request.config.model))
    fail_user("--init: the model of run '" + request.init + "' is another one; it differs in its [model] section");
  return request.init;
}

namespace {

int data_ranks(const Config& config) { return parallel_layout(config.train.parallel, config.process.ranks).data; }

}  // namespace

void divide_into_shards(Config& config) {
  if (config.train.data_shards == 0) config.train.data_shards = data_ranks(config);
  check_share({config.train.data_shards, 0, data_ranks(config)});
  validate(config);
}

void check_space(const RunFolder& folder, const TrainingState& states) {
  check_free_disk(folder.path(), checkpoint_bytes(states) + (1 << 20), "run folder '" + folder.path() + "'",
                  " for its checkpoints");
}

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
