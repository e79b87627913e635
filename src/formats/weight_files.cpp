#include "formats/weight_files.h"
#include <algorithm>
#include <filesystem>
#include <set>
#include "base/error.h"
#include "base/json.h"
#include "base/packed_files.h"
#include "formats/safetensors_format.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

std::string join(const std::string& folder, const std::string& file) { return (fs::path(folder) / file).string(); }

// The names of a file and, if it is cut into shards, of their index; the first that a folder has are read.
constexpr std::pair<const char*, const char*> kNames[] = {{kWeightsFile, kWeightsIndex},
                                                          {kPickledFile, "pytorch_model.bin.index.json"}};

[[noreturn]] void fail_missing(const std::string& folder) {
  if (!file_exists(folder)) fail_user("there is no folder '" + folder + "'");
  for (const char* other : {"tf_model.h5", "flax_model.msgpack"})
    if (file_exists(join(folder, other)))
      fail_user("'" + folder + "' has its weights in " + other + ", Linnet reads " + kWeightsFile +
                " (transformers' save_pretrained() writes it)");
  fail_user("'" + folder + "' has no " + kWeightsFile + " and no " + kWeightsIndex);
}

// {tensor: file name} of an index.
std::map<std::string, std::string> read_index(const std::string& path) {
  const auto fail = [&](const std::string& problem) { fail_user("'" + path + "': " + problem); };
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

}  // namespace

bool has_weight_files(const std::string& folder) {
  const auto is_there = [&](const char* name) {  // a link that leads nowhere is: reading it says so
    std::error_code ignored;
    return file_exists(join(folder, name)) || fs::is_symlink(join(folder, name), ignored);
  };
  return is_gguf(folder) || std::ranges::any_of(kNames, [&](const auto& names) {
           return is_there(names.first) || is_there(names.second);
         });
}

WeightFiles::WeightFiles(const std::string& folder, const std::vector<std::string>& parts) {
  if (is_gguf(folder)) add_file(std::static_pointer_cast<const TensorFile>(open_packed(folder)->owner), "");
  else add_folder(folder, "");
  for (const std::string& part : parts) add_folder(join(folder, part), part + "/");
}

void WeightFiles::add_folder(const std::string& folder, const std::string& prefix) {
  for (const auto& [file, index] : kNames) {
    const std::string whole = join(folder, file), shards = join(folder, index);
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
    if (!file_exists(path)) fail_user("'" + index_path + "' names " + name + ", which is not in the folder");
    add_file(open_tensor_file(path), prefix);
  }
  for (const auto& [tensor, file] : index) {
    const Weight* weight = find(prefix + tensor);
    if (!weight || fs::path(weight->file->path()).filename() != file)
      fail_user("'" + index_path + "' says that tensor " + tensor + " is in " + file + ", but it is not");
  }
  for (const Weight& weight : weights_)
    if (weight.name.starts_with(prefix) && !index.contains(weight.entry->name))
      fail_user("'" + weight.file->path() + "' holds tensor " + weight.entry->name + ", which " +
                fs::path(index_path).filename().string() + " does not name");
}

void WeightFiles::add_file(std::shared_ptr<const TensorFile> file, const std::string& prefix) {
  files_.push_back(std::move(file));
  for (const TensorEntry& entry : files_.back()->entries()) {
    const std::string name = prefix + entry.name;
    if (const Weight* other = find(name))
      fail_user("tensor " + entry.name + " is both in '" + other->file->path() + "' and in '" + files_.back()->path() +
                "'");
    by_name_[name] = weights_.size();
    weights_.push_back({name, &entry, files_.back().get()});
  }
}

const WeightFiles::Weight* WeightFiles::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &weights_[found->second];
}

uint64_t WeightFiles::bytes() const {
  uint64_t bytes = 0;
  for (const Weight& weight : weights_) bytes += weight.entry->bytes();
  return bytes;
}

}  // namespace linnet
