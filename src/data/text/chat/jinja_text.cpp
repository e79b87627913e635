#include "data/text/chat/jinja_text.h"

#include <algorithm>

#include "data/text/unicode/utf8.h"

namespace linnet::jinja {

const std::string& text_of(const Value& value, const char* what) {
  if (const Undefined* missing = value.as<Undefined>()) fail("'" + missing->name + "' is not defined");
  if (!value.text()) fail(std::string(what) + " needs a text, not a " + value.type_name());
  return *value.text();
}

std::string text_argument(const Arguments& arguments, size_t location, const char* name, const std::string& otherwise) {
  const Value* given = arguments.find(location, name);
  return given && !given->is_none() ? text_of(*given, name) : otherwise;
}

int64_t integer_argument(const Arguments& arguments, size_t location, const char* name, int64_t otherwise) {
  const Value* given = arguments.find(location, name);
  if (!given || given->is_none()) return otherwise;
  if (!given->is_integer()) fail(std::string("'") + name + "' needs a whole number, not a " + given->type_name());
  return given->integer();
}

bool flag_argument(const Arguments& arguments, size_t location, const char* name) {
  const Value* given = arguments.find(location, name);
  return given && given->truth();
}

std::string stripped(const std::string& text, const std::string& characters, bool left, bool right) {
  const size_t begin = left ? text.find_first_not_of(characters) : 0;
  if (begin == text.npos) return "";
  const size_t end = right ? text.find_last_not_of(characters) + 1 : text.size();
  return text.substr(begin, end - std::min(begin, end));
}

std::string with_case(std::string text, bool upper) {
  for (char& c : text)
    c = static_cast<char>(upper ? (c >= 'a' && c <= 'z' ? c - 32 : c) : (c >= 'A' && c <= 'Z' ? c + 32 : c));
  return text;
}

std::string capitalized(const std::string& text, bool each_word) {
  std::string result = with_case(text, false);
  bool starts = true;
  for (char& c : result) {
    if (starts && c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
    starts = each_word && !std::isalnum(static_cast<unsigned char>(c));
  }
  return result;
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t count,
                     const Budget& budget) {
  if (from.empty()) fail("'replace' needs a text to look for");
  std::string result;
  size_t at = 0;
  for (size_t found; count != 0 && (found = text.find(from, at)) != text.npos; --count) {
    result += text.substr(at, found - at) + to;
    at = found + from.size();
    budget.check_text(result.size());
  }
  return result + text.substr(at);
}

List split(const std::string& text, const Arguments& arguments) {
  const Value* given = arguments.find(0, "sep");
  const std::string separator = given && !given->is_none() ? text_of(*given, "split") : "";
  int64_t most = integer_argument(arguments, 1, "maxsplit", -1);
  if (given && given->text() && separator.empty()) fail("'split' needs a separator");
  List parts;
  if (separator.empty()) {
    for (size_t at = text.find_first_not_of(kSpace); at != text.npos;) {
      const size_t end = most-- == 0 ? text.npos : text.find_first_of(kSpace, at);
      parts.emplace_back(end == text.npos ? stripped(text.substr(at), kSpace, false, most < -1)
                                          : text.substr(at, end - at));
      at = end == text.npos ? end : text.find_first_not_of(kSpace, end);
    }
    return parts;
  }
  size_t at = 0;
  for (size_t found; most-- != 0 && (found = text.find(separator, at)) != text.npos; at = found + separator.size())
    parts.emplace_back(text.substr(at, found - at));
  parts.emplace_back(text.substr(at));
  return parts;
}

size_t length_of(const Value& value) {
  if (const List* list = value.list()) return list->size();
  if (const Dict* dict = value.dict()) return dict->items.size();
  if (!value.text() && !value.is_undefined()) fail("a " + value.type_name() + " has no length");
  return elements(value).size();
}

List pairs_of(const Dict& dict) {
  List pairs;
  for (const auto& [key, value] : dict.items) pairs.emplace_back(List{key, value});
  return pairs;
}

Value attribute_of(Value value, const std::string& path) {
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    if (value.is_undefined()) return value;
    value = get_item(value, path.substr(at, end - at));
    at = end + 1;
  }
  return value;
}

Value join_filter(const Value& value, const Arguments& arguments, const Budget& budget) {
  const std::string between = text_argument(arguments, 0, "d", "");
  const Value* attribute = arguments.find(1, "attribute");
  std::string text;
  bool first = true;
  for (const Value& item : elements(value)) {
    text += (first ? "" : between) + to_text(attribute ? attribute_of(item, text_of(*attribute, "join")) : item);
    first = false;
    budget.check_text(text.size());
  }
  return text;
}

Value strip_of(const Value& value, const Arguments& arguments, bool left, bool right) {
  return stripped(to_text(value), text_argument(arguments, 0, "chars", kSpace), left, right);
}

const Value& other(const Arguments& arguments) {
  if (arguments.positional.empty()) fail("a test needs something to compare with");
  return arguments.positional[0];
}

}  // namespace linnet::jinja
