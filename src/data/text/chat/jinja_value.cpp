#include "data/text/chat/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "data/text/unicode/utf8.h"

namespace linnet::jinja {
namespace {

constexpr int kDeepest = 100;  // of nested lists and dictionaries that are printed or compared

void check_depth(int depth) {
  if (depth > kDeepest) fail("a value nests deeper than " + std::to_string(kDeepest) + " levels");
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr);
  return plain && text.find('.') == text.npos ? text + ".0" : text;
}

std::string quoted(const std::string& text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string result(1, quote);
  for (const char c : text) {
    if (c == '\n')
      result += "\\n";
    else if (c == '\r')
      result += "\\r";
    else if (c == '\t')
      result += "\\t";
    else if (c == '\\' || c == quote)
      result += std::string("\\") + c;
    else
      result += c;
  }
  return result + quote;
}

std::string json_quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        result += "\\\"";
        break;
      case '\\':
        result += "\\\\";
        break;
      case '\n':
        result += "\\n";
        break;
      case '\r':
        result += "\\r";
        break;
      case '\t':
        result += "\\t";
        break;
      case '\b':
        result += "\\b";
        break;
      case '\f':
        result += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) {
          result += c;
        } else {
          const char* digits = "0123456789abcdef";
          result += std::string("\\u00") + digits[c >> 4] + digits[c & 15];
        }
    }
  }
  return result + "\"";
}

std::string repr_at(const Value& value, int depth) {
  check_depth(depth);
  if (const std::string* text = value.text()) return quoted(*text);
  std::string result;
  if (const List* list = value.list()) {
    for (const Value& item : *list) result += (result.empty() ? "" : ", ") + repr_at(item, depth + 1);
    return "[" + result + "]";
  }
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, item] : dict->items)
      result += (result.empty() ? "" : ", ") + quoted(key) + ": " + repr_at(item, depth + 1);
    return "{" + result + "}";
  }
  return to_text(value);
}

std::string json_at(const Value& value, int indent, bool sort_keys, int depth) {
  check_depth(depth);
  const std::string line = indent < 0 ? "" : "\n" + std::string(static_cast<size_t>(indent * (depth + 1)), ' ');
  const std::string last = indent < 0 ? "" : "\n" + std::string(static_cast<size_t>(indent * depth), ' ');
  const std::string comma = indent < 0 ? ", " : ",";
  std::string result;
  if (const std::string* text = value.text()) return json_quoted(*text);
  if (const List* list = value.list()) {
    for (const Value& item : *list)
      result += (result.empty() ? "" : comma) + line + json_at(item, indent, sort_keys, depth + 1);
    return list->empty() ? "[]" : "[" + result + last + "]";
  }
  if (const Dict* dict = value.dict()) {
    auto items = dict->items;
    if (sort_keys) std::ranges::stable_sort(items, {}, [](const auto& item) { return item.first; });
    for (const auto& [key, item] : items)
      result +=
          (result.empty() ? "" : comma) + line + json_quoted(key) + ": " + json_at(item, indent, sort_keys, depth + 1);
    return items.empty() ? "{}" : "{" + result + last + "}";
  }
  if (value.is_none()) return "null";
  if (const bool* flag = value.as<bool>()) return *flag ? "true" : "false";
  if (value.is_number()) return to_text(value);
  fail("a value of the type " + value.type_name() + " has no JSON");
}

bool equal_at(const Value& a, const Value& b, int depth) {
  check_depth(depth);
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.number() == b.number();
  if (a.text() && b.text()) return *a.text() == *b.text();
  if (const List* x = a.list(), *y = b.list(); x && y)
    return std::ranges::equal(*x, *y, [&](const Value& c, const Value& d) { return equal_at(c, d, depth + 1); });
  if (const Dict* x = a.dict(), *y = b.dict(); x && y)
    return x->items.size() == y->items.size() && std::ranges::all_of(x->items, [&](const auto& item) {
             const Value* other = y->find(item.first);
             return other && equal_at(item.second, *other, depth + 1);
           });
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

}  // namespace

void fail(const std::string& what) { throw TemplateError{what}; }

const Value* Dict::find(const std::string& key) const {
  for (const auto& [name, value] : items)
    if (name == key) return &value;
  return nullptr;
}

void Dict::set(const std::string& key, Value value) {
  for (auto& [name, old] : items)
    if (name == key) {
      old = std::move(value);
      return;
    }
  items.emplace_back(key, std::move(value));
}

const Value* Arguments::find(size_t position, const std::string& name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

const List* Value::list() const {
  const auto* list = as<std::shared_ptr<List>>();
  return list ? list->get() : nullptr;
}

Dict* Value::dict() const {
  const auto* dict = as<std::shared_ptr<Dict>>();
  return dict ? dict->get() : nullptr;
}

const Function* Value::function() const {
  const auto* function = as<std::shared_ptr<Function>>();
  return function ? function->get() : nullptr;
}

int64_t Value::integer() const {
  if (const bool* flag = as<bool>()) return *flag;
  const int64_t* number = as<int64_t>();
  return number ? *number : 0;
}

double Value::number() const {
  const double* number = as<double>();
  return number ? *number : static_cast<double>(integer());
}

bool Value::truth() const {
  if (is_number()) return number() != 0;
  if (const std::string* value = text()) return !value->empty();
  if (const List* value = list()) return !value->empty();
  if (const Dict* value = dict()) return value->is_namespace || !value->items.empty();
  return function() != nullptr;
}

std::string Value::type_name() const {
  if (as<bool>()) return "bool";
  if (as<int64_t>()) return "int";
  if (as<double>()) return "float";
  if (text()) return "str";
  if (list()) return "list";
  if (dict()) return "dict";
  if (function()) return "function";
  return is_none() ? "NoneType" : "undefined";
}

bool equal(const Value& a, const Value& b) { return equal_at(a, b, 0); }

int compare(const Value& a, const Value& b) {
  const auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.is_integer() && b.is_integer()) return sign(a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return sign(a.number(), b.number());
  if (a.text() && b.text()) return sign(a.text()->compare(*b.text()), 0);
  fail("a " + a.type_name() + " and a " + b.type_name() + " cannot be ordered");
}

std::string to_text(const Value& value) {
  if (const std::string* text = value.text()) return *text;
  if (const bool* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.integer());
  if (const double* number = value.as<double>()) return float_text(*number);
  if (value.is_none()) return "None";
  if (value.is_undefined()) return "";
  if (value.function()) fail("a function has no text");
  return repr_at(value, 0);
}

std::string to_repr(const Value& value) { return repr_at(value, 0); }

std::string to_json(const Value& value, int indent, bool sort_keys) { return json_at(value, indent, sort_keys, 0); }

List elements(const Value& value) {
  if (value.is_undefined()) return {};
  if (const List* list = value.list()) return *list;
  List result;
  if (const std::string* text = value.text()) {
    for (size_t i = 0; i < text->size();) {
      const size_t length = utf8_length_at(*text, i);
      result.emplace_back(text->substr(i, length));
      i += length;
    }
    return result;
  }
  const Dict* dict = value.dict();
  if (!dict) fail("a " + value.type_name() + " cannot be iterated over");
  for (const auto& [key, item] : dict->items) result.emplace_back(key);
  return result;
}

}  // namespace linnet::jinja
