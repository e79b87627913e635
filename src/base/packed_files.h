// Files that lie inside another file: "model.linnet" is read like a folder, so that "model.linnet/config.json" names
// what a packed model (formats/packed_model.h) has inside. read_file() and file_exists() look there where the system
// says that a part of the path is no folder.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace linnet {

constexpr const char* kPackedEnding = ".linnet";
constexpr const char* kGgufEnding = ".gguf";  // files of llama.cpp (models/families/gguf.h)
// A file inside that is made of other files there (data/text/pipeline/tokenizer_tables.h) and means nothing outside.
constexpr const char* kTokenizerTables = "tokenizer.tables";

// What a packed file holds. `data` point into a mapping that `owner` keeps.
struct PackedFiles {
  std::shared_ptr<const void> owner;
  std::map<std::string, std::string_view> files;  // by path inside: "1_Pooling/config.json"
  bool has_weights = false;                       // read as "model.safetensors"
  // User error when the weights are not those that were packed. Files are compared when they are opened; weights, which
  // are nearly all of the bytes, by this alone.
  void check() const {
    if (check_weights) check_weights();
  }
  std::function<void()> check_weights = {};  // empty: they have been compared
  bool has_folder(const std::string& inside) const;
};

// How to read one whose name has that ending. Before it is set, such a file is no folder. User error for a file that is
// damaged.
using PackedReader = PackedFiles (*)(const std::string& path);
void set_packed_reader(const char* ending, PackedReader reader);

// Whether a regular file of that name is to be read as a folder.
bool is_packed(const std::string& path);
bool is_gguf(const std::string& path);
// Read once, then kept until the file changes or four others have been opened.
std::shared_ptr<const PackedFiles> open_packed(const std::string& path);

// "a/model.linnet/config.json" as {"a/model.linnet", "config.json"}; both empty where no such file is on the path.
struct PackedPath {
  std::string packed, inside;
};
PackedPath split_packed_path(const std::string& path);

// A folder, or a file that is read like one.
bool is_folder(const std::string& path);

}  // namespace linnet
