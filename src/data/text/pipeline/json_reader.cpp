#include <functional>

#include "base/error.h"
#include "data/text/pipeline/json_reader-inl.h"

namespace linnet {

using nlohmann::json;

JsonObject::JsonObject(const json& value, std::string where) : value_(&value), where_(std::move(where)) {
  if (!value.is_object()) fail("is not an object");
}

bool JsonObject::has(const char* key) const {
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

const json& JsonObject::at(const char* key) const {
  const auto found = value_->find(key);
  if (found == value_->end()) fail(std::string("has no '") + key + "'");
  return *found;
}

std::string JsonObject::text(const char* key) const {
  const json& value = at(key);
  if (!value.is_string()) fail(std::string("'") + key + "' is not a string");
  return value.get<std::string>();
}

bool JsonObject::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const json& value = at(key);
  if (!value.is_boolean()) fail(std::string("'") + key + "' is neither true nor false");
  return value.get<bool>();
}

int64_t JsonObject::integer(const char* key) const {
  const json& value = at(key);
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX))
    fail(std::string("'") + key + "' is not an integer");
  return value.get<int64_t>();
}

std::string JsonObject::within(const std::string& key) const {
  return where_ + (where_.ends_with(':') ? " " : ".") + key;
}

void JsonObject::fail(const std::string& what) const { fail_user(where_ + " " + what); }

namespace {

using Event = json::parse_event_t;
// What to keep of what the parser has found; as json::parse() takes it.
using Keep = std::function<bool(int depth, Event event, json& found)>;

json parse_checked(std::string_view text, const std::string& path, const Keep& keep) {
  constexpr int kDeepest = 100;
  bool too_deep = false;
  try {
    json value = json::parse(text, [&](int depth, Event event, json& found) {
      if (depth > kDeepest && (event == Event::object_start || event == Event::array_start)) too_deep = true;
      return !too_deep && keep(depth, event, found);
    });
    if (!too_deep) return value;
  } catch (const json::parse_error& error) {
    std::string what = error.what();
    if (const size_t at = what.find("] "); at != std::string::npos) what = what.substr(at + 2);
    for (char& c : what)
      if (static_cast<unsigned char>(c) < ' ') c = ' ';
    fail_user("'" + path + "' is not JSON: " + what);
  } catch (const json::exception&) {
    fail_user("'" + path + "' is not JSON");
  }
  fail_user("'" + path + "' nests deeper than " + std::to_string(kDeepest) + " levels");
}

}  // namespace

json parse_json(std::string_view text, const std::string& path) {
  return parse_checked(text, path, [](int, Event, json&) { return true; });
}

json parse_json(std::string_view text, const std::string& path, const char* outer, const char* inner,
                JsonMembers& members) {
  constexpr int kOuter = 1, kInner = 2, kMember = 3;  // depths of keys
  bool in_outer = false, in_inner = false, in_object = false;
  return parse_checked(text, path, [&](int depth, Event event, json& found) {
    if (event == Event::key && depth <= kInner) {
      if (depth == kOuter) in_outer = found == outer, in_inner = false;
      if (depth == kInner) in_inner = in_outer && found == inner;
      if (depth == kOuter ? in_outer : in_inner) members.clear();  // of two of a name the last counts
    } else if (in_inner && depth == kInner && event == Event::object_start) {
      in_object = true;
    } else if (in_object && depth == kInner && event == Event::object_end) {
      in_inner = in_object = false;
    } else if (in_object && depth == kMember && event == Event::key) {
      members.emplace_back(std::move(found.get_ref<std::string&>()), json());
      return false;  // so the value is not kept either
    } else if (in_object && depth == kMember && event == Event::value) {
      members.back().second = found;
    }
    // The value of a member that is a list or an object stays null.
    return true;
  });
}

std::string json_text(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace linnet
