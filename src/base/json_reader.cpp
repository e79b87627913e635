#include <algorithm>
#include <cmath>
#include <optional>
#include "base/json.h"
#include "base/text.h"

namespace linnet {
JsonObject::JsonObject(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {
  if (!value.is_object()) fail("is not an object");
}

std::string JsonObject::within(const std::string& key) const {
  return where_ + (where_.empty() ? "" : where_.ends_with(':') ? " " : ".") + key;
}

const Json* JsonObject::find(const char* key) const {
  known_.emplace_back(key);
  return value_->find(key);
}

bool JsonObject::has(const char* key) const {
  const Json* found = find(key);
  return found && !found->is_null();
}

const Json& JsonObject::at(const char* key) const {
  const Json* found = find(key);
  if (!found) fail(std::string("has no \"") + key + "\"");
  return *found;
}

const Json& JsonObject::expect(const char* key, bool (Json::*is)() const, const char* problem) const {
  const Json& value = at(key);
  if (!(value.*is)()) fail(key, problem);
  return value;
}

JsonObject JsonObject::object(const char* key) const {
  return {expect(key, &Json::is_object, "is not an object"), within(key)};
}

const Json& JsonObject::list(const char* key) const { return expect(key, &Json::is_array, "is not a list"); }

std::vector<JsonObject> JsonObject::objects(const char* key) const {
  std::vector<JsonObject> all;
  for (const Json& one : list(key)) all.emplace_back(one, within(key) + "[" + std::to_string(all.size()) + "]");
  return all;
}

std::string JsonObject::text(const char* key) const { return expect(key, &Json::is_string, "is not a string").text(); }

std::vector<std::string> JsonObject::texts(const char* key) const {
  if (!has(key)) return {};
  const Json& value = at(key);
  if (value.is_string()) return {value.text()};
  if (!value.is_array() || !std::ranges::all_of(value, &Json::is_string))
    fail(key, "is neither a string nor a list of strings");
  return value.get<std::vector<std::string>>();
}

bool JsonObject::flag(const char* key, bool otherwise) const {
  return has(key) ? expect(key, &Json::is_boolean, "is neither true nor false").get<bool>() : otherwise;
}

int64_t JsonObject::integer(const char* key) const {
  const std::optional<int64_t> number = at(key).whole_number();
  if (!number) fail(key, "is not an integer");
  return *number;
}

std::optional<int64_t> JsonObject::integer(const char* key, int64_t least, int64_t most) const {
  if (!has(key)) return {};
  const std::optional<int64_t> number = at(key).whole_number();
  if (!number || *number < least || *number > most)
    fail(key, "is not a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return number;
}

std::optional<double> JsonObject::number(const char* key, bool (*fits)(double), const std::string& range) const {
  if (!has(key)) return {};
  const Json& value = at(key);
  if (!value.is_number() || !std::isfinite(value.get<double>()) || !fits(value.get<double>()))
    fail(key, "is not a number that is " + range);
  return value.get<double>();
}

void JsonObject::check_names(std::string (*nearest)(std::string_view, std::span<const std::string>)) const {
  for (const auto& [key, value] : value_->items()) {
    if (value.is_null() || contains(known_, key)) continue;
    const std::string near = nearest(key, known_);
    throw JsonError(
        one_line((where_.empty() ? "" : where_ + (where_.ends_with(':') ? " " : ": ")) + "there is no setting \"" +
                 key + "\"" + (near.empty() ? "" : " (did you mean \"" + near + "\"?)")),
        key);
  }
}

void JsonObject::fail(const std::string& what) const {
  throw JsonError(one_line(where_.empty() ? what : where_ + " " + what));
}

void JsonObject::fail(const std::string& key, const std::string& what) const {
  throw JsonError(one_line((where_.empty() ? "\"" : where_ + " \"") + key + "\" " + what), key);
}
}  // namespace linnet
