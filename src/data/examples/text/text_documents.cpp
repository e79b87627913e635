#include "data/examples/text/text_documents.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/examples/text/line_reader.h"

namespace linnet {
namespace {

// The document in a JSON value: the string `key` of an object. `where`: for messages.
std::string document_of(nlohmann::json& value, const std::string& key, const std::string& where) {
  const auto found = value.find(key);
  if (found == value.end() || !found->is_string()) fail_user(where + ": no string \"" + key + "\"");
  return std::move(found->get_ref<std::string&>());
}

void read_json_lines(const std::string& path, const std::string& key, FunctionRef<void(std::string)> document) {
  LineReader reader(path);
  for (std::string line; reader.next(line);) {
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) fail_user(reader.where() + ": not a JSON object on a line of its own");
    document(document_of(object, key, reader.where()));
  }
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
  auto value = nlohmann::json::parse(read_whole(path), nullptr, false);
  if (value.is_discarded()) return read_json_lines(path, key, document);
  if (value.is_object()) return document(document_of(value, key, "'" + path + "'"));
  if (!value.is_array()) fail_user("'" + path + "': neither JSON objects nor a list of them");
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string where = "'" + path + "': entry " + std::to_string(i + 1);
    if (!value[i].is_object()) fail_user(where + " is not a JSON object");
    document(document_of(value[i], key, where));
  }
}

}  // namespace

bool is_json_lines(const std::string& path) {
  return has_ending(path, ".jsonl") || has_ending(path, ".ndjson") || has_ending(path, ".json");
}

void read_documents(const std::string& path, const std::string& key, FunctionRef<void(std::string)> document) {
  if (has_ending(path, ".json")) return read_json(path, key, document);
  if (is_json_lines(path)) return read_json_lines(path, key, document);
  document(read_whole(path));
}

}  // namespace linnet
