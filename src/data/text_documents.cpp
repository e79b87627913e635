#include "data/text_documents.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/line_reader.h"

namespace linnet {
namespace {

void read_json_lines(const std::string& path, const std::string& key, FunctionRef<void(std::string)> document) {
  LineReader reader(path);
  for (std::string line; reader.next(line);) {
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) fail_user(reader.where() + ": not a JSON object on a line of its own");
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) fail_user(reader.where() + ": no string \"" + key + "\"");
    document(std::move(found->get_ref<std::string&>()));
  }
}

}  // namespace

bool is_json_lines(const std::string& path) { return path.ends_with(".jsonl") || path.ends_with(".jsonl.gz"); }

void read_documents(const std::string& path, const std::string& key, FunctionRef<void(std::string)> document) {
  if (is_json_lines(path)) return read_json_lines(path, key, document);
  LineReader reader(path);
  std::string text;
  for (std::string line; reader.next(line);) {
    text += line;
    if (reader.line_was_ended()) text += '\n';
  }
  document(std::move(text));
}

}  // namespace linnet
