#include "formats/weight_files.h"
#include <algorithm>
#include <filesystem>
#include <set>
#include "base/fail.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

// Names of a file and of its shards' index; the first that a folder has are read.
constexpr std::pair<const char*, const char*> kNames[] = {
    {kWeightsFile, kWeightsIndex}, {kPickledFile, "pytorch_model.bin.index.json"}};

[[noreturn]] void fail_missing(const std::string& folder) {
  if (!file_exists(folder)) fail_user("there is no folder '", folder, "'");
  for (const char* other : {"tf_model.h5", "flax_model.msgpack"})
    if (file_exists(path_in(folder, other)))
      fail_user("'", folder, "' has its weights in ", other, ", Linnet reads ", kWeightsFile,
          " (transformers' save_pretrained() writes it)");
  fail_user("'", folder, "' has no ", kWeightsFile, " and no ", kWeightsIndex);
}

std::map<std::string, std::string> read_index(const std::string& path) {
  const auto fail = [&](const std::string& problem) { fail_user("'", path, "': ", problem); };
  const Json index = Json::parse(read_file(path), "'" + path + "'", JsonLimits::tables());
  const Json* map = index.find("weight_map");
  if (!map || !map->is_object()) fail("has no object \"weight_map\"");
  std::map<std::string, std::string> result;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find_first_of(std::string("/\\\0", 3)) != name.npos || name == "..")
      fail("tensor " + tensor + " does not name a file of this folder");
    result[tensor] = name;
  }
  if (result.empty()) fail("\"weight_map\" is empty");
  return result;
}

using Shard = std::vector<const WeightSource*>;

// The file is not yet in its place.
std::unique_ptr<AtomicFile> write_shard(const std::string& path, Shard shard, const SafetensorsMetadata& metadata,
    WeightOrder order = WeightOrder::kByWidth) {
  constexpr int64_t kPiece = 1 << 20;  // elements converted at once
  const bool by_width = order == WeightOrder::kByWidth;
  if (by_width)
    std::ranges::stable_sort(
        shard, std::ranges::greater{}, [](const WeightSource* weight) { return file_dtype_size(weight->dtype); });
  std::vector<SafetensorsSize> sizes;
  for (const WeightSource* weight : shard) sizes.push_back({weight->name, weight->dtype, weight->shape});
  auto file = std::make_unique<AtomicFile>(path);
  file->write(safetensors_header(sizes, metadata, by_width ? 8 : 4096));
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

// In order; a shard ends where the next tensor would not fit.
std::vector<Shard> cut(const std::vector<WeightSource>& weights, uint64_t max_bytes) {
  std::vector<Shard> shards(1);
  uint64_t used = 0;
  for (const WeightSource& weight : weights) {
    const uint64_t bytes = weight.bytes();
    if (!shards.back().empty() && used + bytes > max_bytes) shards.emplace_back(), used = 0;
    shards.back().push_back(&weight);
    used += bytes;
  }
  return shards;
}

// Removes older weight files, which readers would take for part of the model.
void remove_others(const std::string& folder, const std::set<std::string>& written) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool shard = name.starts_with("model-") && name.ends_with(".safetensors") && name.find("-of-") != name.npos;
    if ((shard || name == kWeightsFile || name == kWeightsIndex) && !written.contains(name)) fs::remove(entry.path());
  }
}

uint64_t bytes_of(const std::vector<WeightSource>& weights) { return sum_of<uint64_t>(weights, &WeightSource::bytes); }
}  // namespace

bool has_weight_files(const std::string& folder) {
  const auto is_there = [&](const char* name) {  // a link that leads nowhere is: reading it says so
    std::error_code ignored;
    return file_exists(path_in(folder, name)) || fs::is_symlink(path_in(folder, name), ignored);
  };
  return is_gguf(folder) || std::ranges::any_of(kNames,
                                [&](const auto& names) { return is_there(names.first) || is_there(names.second); });
}

WeightFiles::WeightFiles(const std::string& folder, const std::vector<std::string>& parts) {
  if (is_gguf(folder)) add_file(std::static_pointer_cast<const TensorFile>(open_packed(folder)->owner), "");
  else add_folder(folder, "");
  for (const std::string& part : parts) add_folder(path_in(folder, part), part + "/");
}

void WeightFiles::add_folder(const std::string& folder, const std::string& prefix) {
  for (const auto& [file, index] : kNames) {
    const std::string whole = path_in(folder, file), shards = path_in(folder, index);
    if (file_exists(whole)) return add_file(open_tensor_file(whole), prefix);
    if (file_exists(shards)) return add_shards(shards, prefix);
  }
  fail_missing(folder);
}

void WeightFiles::add_shards(const std::string& index_path, const std::string& prefix) {
  const std::map<std::string, std::string> index = read_index(index_path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  for (const std::string& name : names) {
    const std::string path = fs::path(index_path).replace_filename(name).string();
    if (!file_exists(path)) fail_user("'", index_path, "' names ", name, ", which is not in the folder");
    add_file(open_tensor_file(path), prefix);
  }
  for (const auto& [tensor, file] : index) {
    const Weight* weight = find(prefix + tensor);
    if (!weight || fs::path(weight->file->path()).filename() != file)
      fail_user("'", index_path, "' says that tensor ", tensor, " is in ", file, ", but it is not");
  }
  for (const Weight& weight : weights_)
    if (weight.name.starts_with(prefix) && !index.contains(weight.entry->name))
      fail_user("'", weight.file->path(), "' holds tensor ", weight.entry->name, ", which ",
          fs::path(index_path).filename().string(), " does not name");
}

void WeightFiles::add_file(std::shared_ptr<const TensorFile> file, const std::string& prefix) {
  files_.push_back(std::move(file));
  for (const TensorEntry& entry : files_.back()->entries()) {
    const std::string name = prefix + entry.name;
    if (const Weight* other = find(name))
      fail_user("tensor ", entry.name, " is both in '", other->file->path(), "' and in '", files_.back()->path(), "'");
    by_name_[name] = weights_.size();
    weights_.push_back({name, &entry, files_.back().get()});
  }
}

const WeightFiles::Weight* WeightFiles::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &weights_[found->second];
}

uint64_t WeightFiles::bytes() const {
  return sum_of<uint64_t>(weights_, [](const Weight& weight) { return weight.entry->bytes(); });
}

WeightSource stored_weight(std::string name, FileDType dtype, const Shape& shape, const std::byte* data) {
  const size_t size = file_dtype_size(dtype);
  return {std::move(name), dtype, shape, [data, size](int64_t first, int64_t count, std::byte* out) {
            std::memcpy(out, data + static_cast<size_t>(first) * size, static_cast<size_t>(count) * size);
          }};
}

void save_weight_file(const std::string& path, const std::vector<WeightSource>& weights,
    const SafetensorsMetadata& metadata, WeightOrder order) {
  check_free_disk(path, bytes_of(weights), "'" + path + "'");
  write_shard(path, mapped(weights, [](const WeightSource& weight) { return &weight; }), metadata, order)->commit();
}

void save_weight_files(const std::string& folder, const std::vector<WeightSource>& weights, uint64_t max_shard_bytes,
    const SafetensorsMetadata& metadata) {
  check_free_disk(folder, bytes_of(weights), "'" + folder + "'");
  make_directories(folder);
  const std::vector<Shard> shards = cut(weights, max_shard_bytes);
  if (shards.size() == 1) {
    write_shard(path_in(folder, kWeightsFile), shards[0], metadata)->commit();
    return remove_others(folder, {kWeightsFile});
  }
  // A full disk must not leave shards of both models.
  std::vector<std::unique_ptr<AtomicFile>> files;
  std::set<std::string> written{kWeightsIndex};
  std::map<std::string, std::string> map;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = printed("model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    files.push_back(write_shard(path_in(folder, name), shards[i], metadata));
    written.insert(name);
    for (const WeightSource* weight : shards[i]) map[weight->name] = name;
  }
  const Json index{{"metadata", {{"total_size", bytes_of(weights)}}}, {"weight_map", map}};
  files.push_back(std::make_unique<AtomicFile>(path_in(folder, kWeightsIndex)));
  files.back()->write(index.dump(2) + "\n");
  files.back()->finish();
  for (const auto& file : files) file->commit();
  remove_others(folder, written);
}
}  // namespace linnet
