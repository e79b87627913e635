#include "data/examples/text/text_documents.h"

#include "base/error.h"
#include "base/json.h"
#include "data/examples/text/line_reader.h"

namespace linnet {
namespace {

// The document in a JSON value: the string `key` of an object. `where`: for messages.
std::string document_of(Json& value, const std::string& key, const std::string& where) {
  Json* found = value.find(key);
  if (!found || !found->is_string()) fail_user(where + ": no string \"" + key + "\"");
  return std::move(found->text());
}

void read_json_lines(const std::string& path, const std::string& key, FunctionRef<void(std::string)> document) {
  LineReader reader(path);
  for (std::string line; reader.next(line);) {
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    Json object = Json::parse_or_null(line, JsonLimits::settings());
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
  Json value = Json::parse_or_null(read_whole(path), JsonLimits::tables());
  if (value.is_null()) return read_json_lines(path, key, document);
  if (value.is_object()) return document(document_of(value, key, "'" + path + "'"));
  if (!value.is_array()) fail_user("'" + path + "': neither JSON objects nor a list of them");
  size_t number = 0;
  for (Json& entry : value) {
    const std::string where = "'" + path + "': entry " + std::to_string(++number);
    if (!entry.is_object()) fail_user(where + " is not a JSON object");
    document(document_of(entry, key, where));
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
