#include <algorithm>
#include <filesystem>
#include <set>
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "formats/safetensors_format.h"
#include "formats/weight_files.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using Shard = std::vector<const WeightSource*>;

uint64_t bytes_of(const WeightSource& weight) {
  return static_cast<uint64_t>(weight.shape.elements()) * file_dtype_size(weight.dtype);
}

// The wider elements first, so that every tensor is aligned to its own; among these the caller's order.
Shard shards_in_order(Shard shard) {
  std::ranges::stable_sort(shard, [](const WeightSource* a, const WeightSource* b) {
    return file_dtype_size(a->dtype) > file_dtype_size(b->dtype);
  });
  return shard;
}

// `unit`: the data begin at a multiple of it.
std::string header_of(const Shard& shard, const SafetensorsMetadata& metadata, size_t unit) {
  Json header;
  header[kSafetensorsMetadataKey] = metadata;
  uint64_t offset = 0;
  for (const WeightSource* weight : shard) {
    const uint64_t end = offset + bytes_of(*weight);
    const auto sizes = weight->shape.sizes();
    header[weight->name] = {{"dtype", file_dtype_name(weight->dtype)},
                            {"shape", Json(std::vector<int64_t>(sizes.begin(), sizes.end()))},
                            {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((sizeof(uint64_t) + text.size() + unit - 1) / unit * unit - sizeof(uint64_t), ' ');
  if (text.size() > kMaxSafetensorsHeader) fail_internal("safetensors: the header is too large");
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
}

// Written, not yet in its place.
std::unique_ptr<AtomicFile> write_shard(const std::string& path, Shard shard, const SafetensorsMetadata& metadata,
                                        WeightOrder order = WeightOrder::kByWidth) {
  constexpr int64_t kPiece = 1 << 20;  // elements converted at once
  const bool by_width = order == WeightOrder::kByWidth;
  if (by_width) shard = shards_in_order(std::move(shard));
  auto file = std::make_unique<AtomicFile>(path);
  file->write(header_of(shard, metadata, by_width ? 8 : 4096));
  std::vector<std::byte> piece;
  for (const WeightSource* weight : shard) {
    const int64_t total = weight->shape.elements();
    for (int64_t first = 0; first < total; first += kPiece) {
      const int64_t count = std::min(kPiece, total - first);
      piece.resize(static_cast<size_t>(count) * file_dtype_size(weight->dtype));
      weight->fill(first, count, piece.data());
      file->write(piece.data(), piece.size());
    }
  }
  file->finish();
  return file;
}

// Tensors in the given order, a new shard where the next would not fit.
std::vector<Shard> cut(const std::vector<WeightSource>& weights, uint64_t max_bytes) {
  std::vector<Shard> shards(1);
  uint64_t used = 0;
  for (const WeightSource& weight : weights) {
    const uint64_t bytes = bytes_of(weight);
    if (!shards.back().empty() && used + bytes > max_bytes) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(&weight);
    used += bytes;
  }
  return shards;
}

std::string shard_name(size_t i, size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, count);
  return name;
}

// Weight files that are not among those just written: a reader would take them for part of the model.
void remove_others(const std::string& folder, const std::set<std::string>& written) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool shard = name.starts_with("model-") && name.ends_with(".safetensors") && name.find("-of-") != name.npos;
    if ((shard || name == kWeightsFile || name == kWeightsIndex) && !written.contains(name)) fs::remove(entry.path());
  }
}

// Said before anything is written.
void check_disk(const std::string& path, const std::vector<WeightSource>& weights) {
  uint64_t need = 0;
  for (const WeightSource& weight : weights) need += bytes_of(weight);
  check_free_disk(path, need, "'" + path + "'");
}

}  // namespace

void save_weight_file(const std::string& path, const std::vector<WeightSource>& weights,
                      const SafetensorsMetadata& metadata, WeightOrder order) {
  check_disk(path, weights);
  Shard all;
  for (const WeightSource& weight : weights) all.push_back(&weight);
  write_shard(path, all, metadata, order)->commit();
}

void save_weight_files(const std::string& folder, const std::vector<WeightSource>& weights, uint64_t max_shard_bytes,
                       const SafetensorsMetadata& metadata) {
  check_disk(folder, weights);
  make_directories(folder);
  const auto path = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  const std::vector<Shard> shards = cut(weights, max_shard_bytes);
  std::set<std::string> written;
  if (shards.size() == 1) {
    write_shard(path(kWeightsFile), shards[0], metadata)->commit();
    written.insert(kWeightsFile);
    return remove_others(folder, written);
  }
  // A full disk must not leave some shards of the new and some of the old model.
  std::vector<std::unique_ptr<AtomicFile>> files;
  Json index;
  uint64_t total = 0;
  std::map<std::string, std::string> map;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    files.push_back(write_shard(path(name), shards[i], metadata));
    written.insert(name);
    for (const WeightSource* weight : shards[i]) {
      map[weight->name] = name;
      total += bytes_of(*weight);
    }
  }
  index["metadata"] = {{"total_size", total}};
  index["weight_map"] = map;
  files.push_back(std::make_unique<AtomicFile>(path(kWeightsIndex)));
  files.back()->write(index.dump(2) + "\n");
  files.back()->finish();
  for (const auto& file : files) file->commit();
  written.insert(kWeightsIndex);
  remove_others(folder, written);
}

}  // namespace linnet
