#include "training/run/data_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "config/task_rows.h"

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

DataFingerprint::Entry of_folder(const std::string& path) {
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
  return {"data_dir", bytes, fmt::format("{:016x}", hash)};
}

}  // namespace

DataFingerprint DataFingerprint::of(const Config& config) {
  DataFingerprint fingerprint;
  std::error_code ignored;
  Config copy = config;
  const std::vector<std::string*> paths = data_files(copy);
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string path = data_path(config.data, *paths[i]);
    if (path.empty() || !fs::is_regular_file(path, ignored)) continue;
    const uint64_t bytes = fs::file_size(path, ignored);
    fingerprint.entries.push_back({data_file_keys()[i], bytes, sampled_checksum(path, bytes)});
  }
  if (task_kind(config) == TaskKind::kImages && fs::is_directory(config.data.data_dir, ignored))
    fingerprint.entries.push_back(of_folder(config.data.data_dir));
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

}  // namespace linnet
