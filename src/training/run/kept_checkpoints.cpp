#include "training/run/kept_checkpoints.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "formats/safetensors.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
constexpr const char *kFolder = "/checkpoints", *kEnding = ".safetensors";

// Sums in double: the mean of equal weights is these weights.
std::vector<std::vector<double>> sum_of(std::span<const KeptCheckpoint> checkpoints) {
  std::vector<std::vector<double>> sums;
  const SafetensorsFile first(checkpoints[0].path);
  for (const KeptCheckpoint& checkpoint : checkpoints) {
    const SafetensorsFile file(checkpoint.path);
    file.check_data();
    sums.resize(first.entries().size());
    for (size_t i = 0; i < sums.size(); ++i) {
      const SafetensorsEntry &expected = first.entries()[i], &entry = file.at(expected.name);
      if (entry.type != expected.type) fail_user(file.path() + ": tensor " + entry.name + " is " + entry.type.text());
      sums[i].resize(static_cast<size_t>(entry.type.shape.elements()));
      const auto* values = reinterpret_cast<const float*>(entry.data);
      for (size_t k = 0; k < sums[i].size(); ++k) sums[i][k] += values[k];
      file.drop_pages();
    }
  }
  return sums;
}

// What a model needs beside its weights: everything but what belongs to the training of the other run.
void copy_assets(const std::string& run, const std::string& out) {
  for (const auto& entry : fs::directory_iterator(run)) {
    const std::string name = entry.path().filename();
    if (name == "model.safetensors" || name == "training_state.safetensors" || name == "metrics.jsonl" ||
        name == "checkpoints" || name == ".lock" || name.ends_with(".tmp"))
      continue;
    fs::copy(entry.path(), out + "/" + name, fs::copy_options::recursive);
  }
}

}  // namespace

std::string kept_checkpoint_path(const std::string& folder, int64_t step) {
  make_directories(folder + kFolder);
  return folder + kFolder + "/" + std::to_string(step) + kEnding;
}

std::vector<KeptCheckpoint> kept_checkpoints(const std::string& folder) {
  std::vector<KeptCheckpoint> checkpoints;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder + kFolder, none)) {
    const std::string stem = entry.path().stem();
    int64_t step = 0;
    const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), step);
    if (entry.path().extension() == kEnding && error == std::errc() && end == stem.data() + stem.size())
      checkpoints.push_back({step, entry.path()});
  }
  std::ranges::sort(checkpoints, {}, &KeptCheckpoint::step);
  return checkpoints;
}

void remove_old_checkpoints(const std::string& folder, const TrainConfig& config) {
  int64_t kept = 0;
  const std::vector<KeptCheckpoint> all = kept_checkpoints(folder);
  for (auto checkpoint = all.rbegin(); checkpoint != all.rend(); ++checkpoint) {
    if (kept++ < config.keep_checkpoints) continue;
    if (config.keep_every > 0 && checkpoint->step % config.keep_every == 0) continue;
    std::error_code ignored;  // somebody else may have removed it
    fs::remove(checkpoint->path, ignored);
  }
}

void average_checkpoints(const std::string& run, int64_t count, const std::string& out) {
  RunFolder(run).load_config();
  if (file_exists(out)) fail_user("'" + out + "' exists already; --out names a new folder");
  std::vector<KeptCheckpoint> checkpoints = kept_checkpoints(run);
  if (static_cast<int64_t>(checkpoints.size()) < count)
    fail_user("run '" + run + "' has kept " + std::to_string(checkpoints.size()) + " checkpoints, not " +
              std::to_string(count) + " (keep_checkpoints in its configuration says how many are kept)");
  checkpoints.erase(checkpoints.begin(), checkpoints.end() - count);
  const std::vector<std::vector<double>> sums = sum_of(checkpoints);
  const SafetensorsFile last(checkpoints.back().path), first(checkpoints.front().path);
  std::vector<std::vector<float>> means;
  std::vector<SafetensorsTensor> tensors;
  for (size_t i = 0; i < sums.size(); ++i) {
    std::vector<float>& mean = means.emplace_back();
    for (const double sum : sums[i]) mean.push_back(static_cast<float>(sum / static_cast<double>(count)));
    tensors.push_back({first.entries()[i].name, first.entries()[i].type, mean.data()});
  }
  SafetensorsMetadata metadata = last.metadata();
  metadata["averaged"] = std::to_string(count);
  make_directories(out);
  copy_assets(run, out);
  save_safetensors(RunFolder(out).model_path(), tensors, metadata);
}

}  // namespace linnet
