// Files inside another file: "model.linnet" is read like a folder, so "model.linnet/config.json" names a file inside
// the packed model (formats/packed_model.h). read_file() and file_exists() look there if a part of the path is no
// folder.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace linnet {
constexpr const char* kPackedEnding = ".linnet";
constexpr const char* kGgufEnding = ".gguf";  // files of llama.cpp (models/families/gguf.h)
// A file made from other packed files (data/text/pipeline/tokenizer_tables.h), of no use outside.
constexpr const char* kTokenizerTables = "tokenizer.tables";

// `data` points into a mapping that `owner` keeps.
struct PackedFiles {
  std::shared_ptr<const void> owner;
  std::map<std::string, std::string_view> files;  // by path inside: "1_Pooling/config.json"
  bool has_weights = false;                       // read as "model.safetensors"
  // Throws a user error if the weights differ from those that were packed. Other files are checked when they are
  // opened; weights, nearly all of the bytes, only by this.
  void check() const {
    if (check_weights) check_weights();
  }
  std::function<void()> check_weights = {};  // empty: they have been compared
  bool has_folder(const std::string& inside) const;
};

// Reads files with that ending. Before a reader is set, such a file is no folder. User error for a damaged file.
using PackedReader = PackedFiles (*)(const std::string& path);
void set_packed_reader(const char* ending, PackedReader reader);

// Whether a regular file of that name is read as a folder.
bool is_packed(const std::string& path);
bool is_gguf(const std::string& path);
// Cached until the file changes or four others have been opened.
std::shared_ptr<const PackedFiles> open_packed(const std::string& path);

// "a/model.linnet/config.json" is {"a/model.linnet", "config.json"}; both are empty if the path has no such file.
struct PackedPath {
  std::string packed, inside;
};
PackedPath split_packed_path(const std::string& path);

bool is_folder(const std::string& path);  // or a file that is read like one
}  // namespace linnet
