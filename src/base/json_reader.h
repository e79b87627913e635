// Reads the fields of a JSON object by key. Errors are one line that names the object and the expected value.
#pragma once
#include <optional>
#include <span>
#include "base/json.h"

namespace linnet {
// A null field counts as absent, except for find().
class JsonObject {
 public:
  // `value` outlives this. `where` begins every message ("'tokenizer.json': model"); "" for none.
  JsonObject(const Json& value, std::string where);

  const std::string& where() const { return where_; }
  std::string within(const std::string& key) const;  // where() and the key
  const Json* find(const char* key) const;           // null if absent
  bool has(const char* key) const;
  // Without a default value, an absent field is an error. A field of another type always is.
  const Json& at(const char* key) const;
  const Json& list(const char* key) const;
  JsonObject object(const char* key) const;
  std::vector<JsonObject> objects(const char* key) const;  // of a list
  std::string text(const char* key) const;
  std::string text(const char* key, const std::string& otherwise) const { return has(key) ? text(key) : otherwise; }
  std::vector<std::string> texts(const char* key) const;  // of a string or a list of them; empty if absent
  bool flag(const char* key, bool otherwise) const;
  int64_t integer(const char* key) const;  // also 5.0, as some programs write integers
  int64_t integer(const char* key, int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }
  std::optional<int64_t> integer(const char* key, int64_t least, int64_t most) const;
  // A finite number with fits(x); `range` describes the range in errors.
  std::optional<double> number(const char* key, bool (*fits)(double), const std::string& range) const;

  // Keys that are allowed but not read.
  void ignore(std::initializer_list<const char*> keys) const { known_.insert(known_.end(), keys.begin(), keys.end()); }
  // Throws a user error for a key that nothing has asked for. nearest(key, known) is the suggestion; it may be empty.
  void check_names(std::string (*nearest)(std::string_view key, std::span<const std::string> known)) const;
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;  // of the field

 private:
  const Json& expect(const char* key, bool (Json::*is)() const, const char* problem) const;

  const Json* value_;
  std::string where_;
  mutable std::vector<std::string> known_;  // keys that were asked for
};
}  // namespace linnet
