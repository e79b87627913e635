#include <algorithm>
#include <charconv>
#include <cmath>
#include "data/text/chat/jinja_template.h"
#include "data/text/unicode/utf8.h"

namespace linnet::jinja {
namespace {
constexpr int kDeepest = 100;        // of nested lists and dictionaries that are printed or compared
constexpr int kDeepestValue = 1000;  // that are made
constexpr size_t kLongestName = 100;

void check_depth(int depth) {
  if (depth > kDeepest) fail("a value nests deeper than " + std::to_string(kDeepest) + " levels");
}

template <class Items> auto* value_of(Items& items, const std::string& key) {
  const auto found = std::ranges::find(items, key, &std::pair<std::string, Value>::first);
  return found == items.end() ? nullptr : &found->second;
}

int depth_with(int deepest, const Value& item) {
  if (item.depth() >= kDeepestValue) fail("a value nests deeper than " + std::to_string(kDeepestValue) + " levels");
  return std::max(deepest, item.depth() + 1);
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

// Writes values like repr() or json.dumps(ensure_ascii=False), within a budget.
class Writer {
 public:
  Writer(Budget& budget, bool json, int indent = -1, bool sort_keys = false)
      : budget_(budget), json_(json), indent_(indent), sort_keys_(sort_keys) {}
  std::string write(const Value& value) {
    add(value, 0);
    return std::move(text_);
  }

 private:
  void append(std::string_view piece) {
    budget_.append(piece.size());
    text_ += piece;
  }
  void add_line(int depth) {
    if (indent_ < 0) return;
    const auto spaces = static_cast<size_t>(indent_) * static_cast<size_t>(depth);
    budget_.append(spaces + 1);
    (text_ += '\n').append(spaces, ' ');
  }
  void add(const Value& value, int depth) {
    check_depth(depth);
    budget_.step();
    if (const std::string* text = value.text()) return add_quoted(*text);
    const List* list = value.list();
    const Dict* dict = value.dict();
    if (!list && !dict) return append(name_of(value));
    const char* comma = "";
    const auto begin_item = [&] {
      append(std::exchange(comma, indent_ < 0 ? ", " : ","));
      add_line(depth + 1);
    };
    append(list ? "[" : "{");
    if (list) {
      for (const Value& item : *list) begin_item(), add(item, depth + 1);
    } else {
      std::vector<const std::pair<std::string, Value>*> items;
      budget_.make_list(dict->items.size());
      for (const auto& item : dict->items) items.push_back(&item);
      if (sort_keys_)
        std::ranges::stable_sort(items, {}, [](const auto* item) -> const std::string& { return item->first; });
      for (const auto* item : items) begin_item(), add_quoted(item->first), append(": "), add(item->second, depth + 1);
    }
    if (*comma != '\0') add_line(depth);
    append(list ? "]" : "}");
  }

  void add_quoted(const std::string& text) {
    budget_.append(2 * text.size() + 2);
    const bool has_apostrophe = text.find('\'') != text.npos && text.find('"') == text.npos;
    const char quote = json_ || has_apostrophe ? '"' : '\'';
    constexpr std::string_view kShort = "\\\n\r\t\b\f", kLetters = "\\nrtbf";
    text_ += quote;
    for (const char c : text) {
      if (c == quote) {
        (text_ += '\\') += c;
      } else if (const size_t at = kShort.substr(0, json_ ? 6 : 4).find(c); at != kShort.npos) {
        (text_ += '\\') += kLetters[at];
      } else if (!json_ || static_cast<unsigned char>(c) >= 0x20) {
        text_ += c;
      } else {
        budget_.append(4);
        const char* digits = "0123456789abcdef";
        ((text_ += "\\u00") += digits[c >> 4]) += digits[c & 15];
      }
    }
    text_ += quote;
  }

  // For values that are no text, list or dictionary.
  std::string name_of(const Value& value) const {
    if (!json_ || (value.is_number() && !value.as<bool>())) return to_text(value, budget_);
    if (value.is_none()) return "null";
    if (const bool* flag = value.as<bool>()) return *flag ? "true" : "false";
    fail("a value of the type " + value.type_name() + " has no JSON");
  }

  Budget& budget_;
  const bool json_;
  const int indent_;  // below 0: on one line
  const bool sort_keys_;
  std::string text_;
};
}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget, int depth) {
  check_depth(depth);
  budget.step();
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.number() == b.number();
  if (a.text() && b.text()) {
    if (a.text()->size() != b.text()->size()) return false;
    budget.read(a.text()->size());
    return *a.text() == *b.text();
  }
  if (const List* x = a.list(), *y = b.list(); x && y)
    return std::ranges::equal(*x, *y, [&](const Value& c, const Value& d) { return equal(c, d, budget, depth + 1); });
  if (const Dict* x = a.dict(), *y = b.dict(); x && y)
    return x->items.size() == y->items.size() && std::ranges::all_of(x->items, [&](const auto& item) {
      budget.step(y->items.size());
      const Value* other = y->find(item.first);
      return other && equal(item.second, *other, budget, depth + 1);
    });
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

void fail(const std::string& what) { throw TemplateError{what}; }

const Value* Dict::find(const std::string& key) const { return value_of(items, key); }

void Dict::set(const std::string& key, Value value) {
  if (Value* old = value_of(items, key)) *old = std::move(value);
  else items.emplace_back(key, std::move(value));
}

const Value* Arguments::find(size_t position, const std::string& name) const {
  return position < positional.size() ? &positional[position] : value_of(named, name);
}

Value::Value(List list) {
  int depth = 1;
  for (const Value& item : list) depth = depth_with(depth, item);
  data_ = std::make_shared<const Sequence>(Sequence{std::move(list), depth});
}

Value::Value(Dict dict) {
  for (const auto& [key, item] : dict.items) dict.depth = depth_with(dict.depth, item);
  data_ = std::make_shared<Dict>(std::move(dict));
}

const List* Value::list() const {
  const auto* sequence = shared<Sequence>();
  return sequence ? &sequence->items : nullptr;
}

Dict* Value::dict() const {
  const auto* dict = as<std::shared_ptr<Dict>>();
  return dict ? dict->get() : nullptr;
}

int Value::depth() const {
  const auto* sequence = shared<Sequence>();
  return sequence ? sequence->depth : dict() ? dict()->depth : 0;
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

Value undefined(std::string_view name, Budget& budget) {
  if (name.size() > kLongestName) {
    name = name.substr(0, kLongestName);
    while (!name.empty() && (name.back() & 0xC0) == 0x80) name.remove_suffix(1);  // whole characters
  }
  budget.make_text(name.size());
  return Undefined{std::make_shared<const std::string>(name)};
}

int compare(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  const auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.is_integer() && b.is_integer()) return sign(a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return sign(a.number(), b.number());
  if (a.text() && b.text()) {
    budget.read(std::min(a.text()->size(), b.text()->size()));
    return sign(a.text()->compare(*b.text()), 0);
  }
  fail("a " + a.type_name() + " and a " + b.type_name() + " cannot be ordered");
}

std::string to_text(const Value& value, Budget& budget) {
  if (const std::string* text = value.text()) {
    budget.make_text(text->size());
    return *text;
  }
  if (const bool* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.integer());
  if (const double* number = value.as<double>()) return float_text(*number);
  if (value.is_none()) return "None";
  if (value.is_undefined()) return "";
  if (value.function()) fail("a function has no text");
  return Writer(budget, false).write(value);
}

std::string to_json(const Value& value, Budget& budget, int indent, bool sort_keys) {
  return Writer(budget, true, indent, sort_keys).write(value);
}

List elements(const Value& value, Budget& budget) {
  if (value.is_undefined()) return {};
  if (const List* list = value.list()) {
    budget.make_list(list->size());
    return *list;
  }
  List result;
  if (const std::string* text = value.text()) {
    for (const Utf8Character& character : utf8_characters(*text)) {
      budget.make_text(character.bytes().size() + sizeof(Value));
      result.emplace_back(std::string(character.bytes()));
    }
    return result;
  }
  const Dict* dict = value.dict();
  if (!dict) fail("a " + value.type_name() + " cannot be iterated over");
  budget.make_list(dict->items.size());
  for (const auto& [key, item] : dict->items) {
    budget.make_text(key.size());
    result.emplace_back(key);
  }
  return result;
}
}  // namespace linnet::jinja
