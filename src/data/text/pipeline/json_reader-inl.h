// A tokenizer's JSON, read with errors of one line that name the file and the field.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace linnet {

// Only for .cpp files: it includes the JSON library.
class JsonObject {
 public:
  // `value` outlives this; `where` is "'tokenizer.json': model" and begins every message.
  JsonObject(const nlohmann::json& value, std::string where);

  const std::string& where() const { return where_; }
  bool has(const char* key) const;  // there, and not null
  const nlohmann::json& at(const char* key) const;
  JsonObject object(const char* key) const { return JsonObject(at(key), within(key)); }
  std::string within(const std::string& key) const;  // where() and the key
  std::string text(const char* key) const;
  std::string text(const char* key, const std::string& otherwise) const { return has(key) ? text(key) : otherwise; }
  bool flag(const char* key, bool otherwise) const;
  int64_t integer(const char* key) const;
  int64_t integer(const char* key, int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
};

// Anything but JSON is a user error with the place of the mistake. Nesting deeper than 100 is refused.
nlohmann::json parse_json(std::string_view text, const std::string& path);

// The members of an object in the order of the text. A vocabulary of 50,000 pieces is read so in half of the time that
// the tree of a JSON object takes.
using JsonMembers = std::vector<std::pair<std::string, nlohmann::json>>;
// The same, but the object at `outer`.`inner` is empty in the result, and its members are given apart.
nlohmann::json parse_json(std::string_view text, const std::string& path, const char* outer, const char* inner,
                          JsonMembers& members);

// `value` as one line; what is not UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::json& value);

}  // namespace linnet
