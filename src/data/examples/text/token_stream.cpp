#include "data/examples/text/token_stream.h"
#include <algorithm>
#include <bit>
#include <filesystem>
#include "base/fail.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/lost_pages.h"
#include "data/examples/text/record_reader.h"

namespace linnet {

namespace {

static_assert(std::endian::native == std::endian::little, "token files are read as they lie");
constexpr int64_t kSmall = 1 << 16;

// The document in a JSON value: the string `key` of an object. `where`: for messages.
std::string document_of(Json& value, const std::string& key, const std::string& where) {
  Json* found = value.find(key);
  if (!found || !found->is_string()) fail_user(where, ": no string \"", key, "\"");
  return std::move(found->text());
}

void read_records(const std::string& path, const std::string& key, FunctionRef<void(std::string)> document) {
  RecordReader reader(path, {});
  for (Json record; reader.next(record);) document(document_of(record, key, reader.where()));
}

std::string read_whole(const std::string& path) {
  LineReader reader(path);
  std::string text;
  for (std::string line; reader.next(line);) {
    text += line;
    if (reader.line_was_ended()) text += '\n';
  }
  return text;
}

// One JSON value: an object, or a list of them. Also a file of JSON lines that is only called .json.
void read_json(const std::string& path, const std::string& key, FunctionRef<void(std::string)> document) {
  Json value = Json::parse_or_null(read_whole(path), JsonLimits::tables());
  if (value.is_null()) return read_records(path, key, document);
  if (value.is_object()) return document(document_of(value, key, "'" + path + "'"));
  if (!value.is_array()) fail_user("'", path, "': neither JSON objects nor a list of them");
  size_t number = 0;
  for (Json& entry : value) {
    const std::string where = "'" + path + "': entry " + std::to_string(++number);
    if (!entry.is_object()) fail_user(where, " is not a JSON object");
    document(document_of(entry, key, where));
  }
}

bool is_table_of_tabs(const std::string& path) { return has_ending(path, ".tsv"); }  // a text as any other

// Files with texts in a folder and below it, by name.
std::vector<std::string> find_texts(const std::string& folder) {
  std::vector<std::string> texts;
  int64_t others = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename().string().starts_with('.')) continue;
    const std::string path = entry.path().string();
    const bool text = has_ending(path, ".txt") || has_ending(path, ".md") || has_records(path);
    text ? texts.push_back(path) : void(++others);
  }
  if (texts.empty()) fail_user("'", folder, "' is a folder without texts (.txt, .md, .jsonl, .json, .csv, .tsv)");
  if (others > 0)
    log_warning("'" + folder + "': " + std::to_string(others) + (others == 1 ? " file is" : " files are") +
                " left out: a text ends in .txt, .md, .jsonl, .json, .csv or .tsv");
  std::ranges::sort(texts);
  return texts;
}

}  // namespace

struct TokenStream::Storage {
  std::string name;  // of the file, or empty
  MappedFile file;
  std::vector<uint16_t> small;
  std::vector<uint32_t> large;
};

TokenStream::TokenStream(const std::vector<int32_t>& tokens, int64_t vocab_size)
    : size_(static_cast<int64_t>(tokens.size())), vocab_size_(vocab_size) {
  auto storage = std::make_shared<Storage>();
  if (vocab_size <= kSmall) {
    storage->small.assign(tokens.begin(), tokens.end());
    data_ = storage->small.data();
  } else {
    storage->large.assign(tokens.begin(), tokens.end());
    data_ = storage->large.data(), bytes_each_ = 4;
  }
  storage_ = std::move(storage);
}

TokenStream::TokenStream(const std::string& path, int bytes_each, int64_t vocab_size)
    : bytes_each_(bytes_each), vocab_size_(vocab_size) {
  auto storage = std::make_shared<Storage>();
  storage->name = path, storage->file = MappedFile(path);
  const auto bytes = static_cast<int64_t>(storage->file.size());
  if (bytes % bytes_each != 0)
    fail_user("'", path, "' has ", bytes, " bytes, which is no whole number of tokens of ", bytes_each, " bytes");
  size_ = bytes / bytes_each;
  data_ = storage->file.data();
  storage_ = std::move(storage);
}

TokenStream TokenStream::part(int64_t first, int64_t count) const {
  TokenStream part = *this;
  part.data_ = static_cast<const std::byte*>(data_) + first * bytes_each_;
  part.size_ = count, part.first_ = first_ + first;
  return part;
}

void TokenStream::drop_pages() const { storage_->file.drop_pages(); }

void TokenStream::read(int64_t first, int64_t count, int32_t* out) const {
  if (first < 0 || count < 0 || first + count > size_) fail_internal("tokens beyond the end of a stream");
  const auto copy = [&]<class T>(const T* data) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(data[first + i]);
  };
  if (bytes_each_ == 2) copy(static_cast<const uint16_t*>(data_));
  else copy(static_cast<const uint32_t*>(data_));
  if (storage_->file.data()) check_lost_pages(storage_->file.data());
  for (int64_t i = 0; i < count; ++i)
    if (out[i] < 0 || out[i] >= vocab_size_)
      fail_user(storage_->name.empty() ? "the text" : "'" + storage_->name + "'", ": token ", first_ + first + i,
                " is ", static_cast<uint32_t>(out[i]), ", and the vocabulary has ", vocab_size_, " tokens");
}

bool has_documents(const std::string& path) {
  return (has_records(path) && !is_table_of_tabs(path)) || std::filesystem::is_directory(path);
}

void read_documents(const std::string& path, const std::string& key, FunctionRef<void(std::string)> document) {
  if (std::filesystem::is_directory(path)) {
    for (const std::string& file : find_texts(path)) read_documents(file, key, document);
    return;
  }
  if (has_ending(path, ".json")) return read_json(path, key, document);
  if (has_documents(path)) return read_records(path, key, document);
  document(read_whole(path));
}

}  // namespace linnet
