#include "data/text/chat/jinja_text.h"
#include <algorithm>
#include <cstring>
#include "data/text/unicode/utf8.h"

namespace linnet::jinja {

const std::string& name_of(const Value& missing) {
  static const std::string none;
  const Undefined* found = missing.as<Undefined>();
  return found && found->name ? *found->name : none;
}

void check_defined(const Value& value, const std::string& rest) {
  if (value.is_undefined()) fail("'" + name_of(value) + "' is not defined" + rest);
}

const std::string& text_of(const Value& value, const char* what) {
  check_defined(value);
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

size_t find_text(const std::string& text, const std::string& part, size_t from, Budget& budget) {
  const char* found =
      part.empty()
          ? text.data() + from
          : static_cast<const char*>(::memmem(text.data() + from, text.size() - from, part.data(), part.size()));
  const size_t at = found ? static_cast<size_t>(found - text.data()) : text.npos;
  budget.step();
  budget.read(std::min(at, text.size()) - from + part.size());
  return at;
}

const Value* find_key(const Dict& dict, const std::string& key, Budget& budget) {
  budget.step(1 + dict.items.size() / 4);
  budget.read(key.size());
  return dict.find(key);
}

size_t character_offset(const std::string& text, size_t begin, size_t count) {
  for (; count > 0 && begin < text.size(); --count) begin += utf8_length_at(text, begin);
  return std::min(begin, text.size());
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t count,
                     Budget& budget) {
  if (from.empty()) fail("'replace' needs a text to look for");
  std::string result;
  size_t at = 0;
  for (size_t found; count != 0 && (found = find_text(text, from, at, budget)) != text.npos; --count) {
    budget.append(found - at + to.size());
    result.append(text, at, found - at) += to;
    at = found + from.size();
  }
  budget.append(text.size() - at);
  return result.append(text, at);
}

List split(const std::string& text, const Arguments& arguments, Budget& budget) {
  const Value* given = arguments.find(0, "sep");
  const std::string separator = given && !given->is_none() ? text_of(*given, "split") : "";
  int64_t most = integer_argument(arguments, 1, "maxsplit", -1);
  if (given && given->text() && separator.empty()) fail("'split' needs a separator");
  List parts;
  const auto add = [&](size_t begin, size_t end) {
    budget.make_text(end - begin + sizeof(Value));
    parts.emplace_back(text.substr(begin, end - begin));
  };
  if (separator.empty()) {
    budget.read(text.size());
    for (size_t at = text.find_first_not_of(kSpace); at != text.npos;) {
      const size_t end = most-- == 0 ? text.npos : text.find_first_of(kSpace, at);
      add(at, std::min(end, text.size()));
      at = end == text.npos ? end : text.find_first_not_of(kSpace, end);
    }
    return parts;
  }
  size_t at = 0;
  for (size_t found; most-- != 0 && (found = find_text(text, separator, at, budget)) != text.npos;
       at = found + separator.size())
    add(at, found);
  add(at, text.size());
  return parts;
}

size_t length_of(const Value& value, Budget& budget) {
  if (const List* list = value.list()) return list->size();
  if (const Dict* dict = value.dict()) return dict->items.size();
  if (value.is_undefined()) return 0;
  if (!value.text()) fail("a " + value.type_name() + " has no length");
  const std::string& text = *value.text();
  budget.read(text.size());
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += utf8_length_at(text, at);
  return count;
}

List pairs_of(const Dict& dict, Budget& budget) {
  List pairs;
  for (const auto& [key, value] : dict.items) {
    budget.make_list(3);
    budget.make_text(key.size());
    pairs.emplace_back(List{key, value});
  }
  return pairs;
}

Value attribute_of(Value value, const std::string& path, Budget& budget) {
  budget.read(path.size());
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    if (value.is_undefined()) return value;
    value = get_item(value, path.substr(at, end - at), budget);
    at = end + 1;
  }
  return value;
}

Value join_filter(const Value& value, const Arguments& arguments, Budget& budget) {
  const std::string between = text_argument(arguments, 0, "d", "");
  const Value* attribute = arguments.find(1, "attribute");
  std::string text;
  bool first = true;
  for (const Value& item : elements(value, budget)) {
    const Value part = attribute ? attribute_of(item, text_of(*attribute, "join"), budget) : item;
    if (!std::exchange(first, false)) budget.append(between.size()), text += between;
    append_text(part, text, budget);
  }
  return text;
}

Value strip_of(const std::string& text, const Arguments& arguments, bool left, bool right, Budget& budget) {
  bool is_stripped[256] = {};
  const std::string characters = text_argument(arguments, 0, "chars", kSpace);
  budget.read(text.size() + characters.size());
  for (const char c : characters) is_stripped[static_cast<unsigned char>(c)] = true;
  const auto stripped_at = [&](size_t i) { return is_stripped[static_cast<unsigned char>(text[i])]; };
  size_t begin = 0, end = text.size();
  while (left && begin < end && stripped_at(begin)) ++begin;
  while (right && begin < end && stripped_at(end - 1)) --end;
  budget.make_text(end - begin);
  return text.substr(begin, end - begin);
}

void append_text(const Value& value, std::string& out, Budget& budget) {
  if (const std::string* text = value.text()) {
    budget.append(text->size());
    out += *text;
    return;
  }
  const std::string text = to_text(value, budget);
  budget.append(text.size());
  out += text;
}

const Value& other(const Arguments& arguments) {
  if (arguments.positional.empty()) fail("a test needs something to compare with");
  return arguments.positional[0];
}

}  // namespace linnet::jinja
