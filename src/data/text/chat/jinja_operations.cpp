// Python's operators and methods on template values.
#include <algorithm>
#include <cmath>
#include <cstring>
#include "base/text.h"
#include "data/text/chat/jinja_program.h"
#include "data/text/unicode/utf8.h"

namespace linnet::jinja {
namespace {
int64_t exact(char op, int64_t a, int64_t b) {  // op: '+', '-' or '*'
  int64_t result = 0;
  if (op == '+'   ? __builtin_add_overflow(a, b, &result)
      : op == '-' ? __builtin_sub_overflow(a, b, &result)
                  : __builtin_mul_overflow(a, b, &result))
    fail("a whole number is out of range");
  return result;
}

Value repeated(const Value& value, int64_t count, Budget& budget) {
  const size_t size = value.text() ? value.text()->size() : value.list()->size();
  const size_t times = size == 0 ? 0 : static_cast<size_t>(std::max<int64_t>(count, 0));
  const size_t whole = times > SIZE_MAX / 64 / std::max<size_t>(size, 1) ? SIZE_MAX / 64 : size * times;
  if (value.text()) {
    budget.make_text(whole);
    if (size == 1) return std::string(times, value.text()->front());
    std::string text;
    text.reserve(whole);
    for (size_t i = 0; i < times; ++i) text += *value.text();
    return text;
  }
  budget.make_list(whole);
  List list;
  list.reserve(whole);
  for (size_t i = 0; i < times; ++i) list.insert(list.end(), value.list()->begin(), value.list()->end());
  return list;
}

Value power(const Value& a, const Value& b) {
  if (!a.is_integer() || !b.is_integer() || b.integer() < 0) return std::pow(a.number(), b.number());
  if (std::abs(a.number()) < 2) return static_cast<int64_t>(std::pow(a.number(), b.number()));
  int64_t result = 1;
  for (int64_t i = 0; i < b.integer(); ++i) result = exact('*', result, a.integer());
  return result;
}

int64_t floor_division(int64_t a, int64_t b) {
  return b == -1 ? exact('-', 0, a) : a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Value add(const Value& a, const Value& b, Budget& budget) {
  if (a.is_integer() && b.is_integer()) return exact('+', a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return a.number() + b.number();
  if (a.text() && b.text()) {
    budget.make_text(a.text()->size() + b.text()->size());
    return *a.text() + *b.text();
  }
  if (a.list() && b.list()) {
    budget.make_list(a.list()->size() + b.list()->size());
    List list;
    list.reserve(a.list()->size() + b.list()->size());
    list = *a.list();
    list.insert(list.end(), b.list()->begin(), b.list()->end());
    return list;
  }
  for (const Value* value : {&a, &b}) check_defined(*value);
  fail("a " + a.type_name() + " and a " + b.type_name() + " cannot be added");
}

bool contains(const Value& whole, const Value& part, Budget& budget) {
  if (whole.text()) {
    if (!part.text()) fail("'in' looks for a text in a text, not for a " + part.type_name());
    return find_text(*whole.text(), *part.text(), 0, budget) != std::string::npos;
  }
  if (const Dict* dict = whole.dict()) return part.text() && find_key(*dict, *part.text(), budget);
  if (whole.is_undefined()) return false;
  if (!whole.list()) fail("'in' cannot look into a " + whole.type_name());
  return std::ranges::any_of(*whole.list(), [&](const Value& item) { return equal(item, part, budget); });
}

// The offset of the character `count` characters after `begin`; the text's size if it is beyond the end.
size_t character_offset(const std::string& text, size_t begin, size_t count) {
  for (; count > 0 && begin < text.size(); --count) begin += utf8_length_at(text, begin);
  return std::min(begin, text.size());
}

const std::string& name_of(const Value& missing) {
  static const std::string none;
  const Undefined* found = missing.as<Undefined>();
  return found && found->name ? *found->name : none;
}
}  // namespace

Value operate(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (op == "+") return add(a, b, budget);
  if (op == "~") {
    std::string text = to_text(a, budget);
    append_text(b, text, budget);
    return text;
  }
  if (op == "*" && (a.text() || a.list()) && b.is_integer()) return repeated(a, b.integer(), budget);
  if (op == "*" && (b.text() || b.list()) && a.is_integer()) return repeated(b, a.integer(), budget);
  if (!a.is_number() || !b.is_number())
    fail("'" + std::string(op) + "' needs numbers, not a " + a.type_name() + " and a " + b.type_name());
  if ((op == "/" || op == "//" || op == "%") && b.number() == 0) fail("a division by zero");
  if (op == "/") return a.number() / b.number();
  if (op == "**") return power(a, b);
  if (a.is_integer() && b.is_integer()) {
    const int64_t x = a.integer(), y = b.integer();
    if (op == "-" || op == "*") return exact(op[0], x, y);
    if (op == "//") return floor_division(x, y);
    return y == -1 ? 0 : x - floor_division(x, y) * y;
  }
  const double x = a.number(), y = b.number();
  if (op == "-") return x - y;
  if (op == "*") return x * y;
  return op == "//" ? std::floor(x / y) : x - std::floor(x / y) * y;
}

bool holds(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (op == "==") return equal(a, b, budget);
  if (op == "!=") return !equal(a, b, budget);
  if (op == "in") return contains(b, a, budget);
  if (op == "not in") return !contains(b, a, budget);
  const int order = compare(a, b, budget);
  return op == "<" ? order < 0 : op == ">" ? order > 0 : op == "<=" ? order <= 0 : order >= 0;
}

Value get_item(const Value& value, const Value& key, Budget& budget) {
  if (value.is_undefined())
    check_defined(value, ", and '" + name_of(undefined(to_text(key, budget), budget)) + "' is asked of it");
  if (const Dict* dict = value.dict()) {
    const Value* found = key.text() ? find_key(*dict, *key.text(), budget) : nullptr;
    return found ? *found : undefined(to_text(key, budget), budget);
  }
  if (value.list() && key.is_integer()) {
    const List& list = *value.list();
    const int64_t at = key.integer() < 0 ? key.integer() + std::ssize(list) : key.integer();
    if (at >= 0 && at < std::ssize(list)) return list[at];
  }
  if (value.text() && key.is_integer()) {
    const std::string& text = *value.text();
    const int64_t size = key.integer() < 0 ? static_cast<int64_t>(length_of(value, budget)) : 0;
    const int64_t at = key.integer() + size;
    if (at >= 0) {
      budget.read(text.size());
      const size_t begin = character_offset(text, 0, static_cast<size_t>(at));
      if (begin < text.size()) return text.substr(begin, utf8_length_at(text, begin));
    }
  }
  return undefined(to_text(key, budget), budget);
}

Value slice_of(const Value& object, const Value& begin, const Value& end, const Value& by, Budget& budget) {
  if (!object.text() && !object.list()) fail("a " + object.type_name() + " cannot be sliced");
  for (const Value* bound : {&begin, &end, &by})
    if (!bound->is_none() && !bound->is_integer()) fail("a slice needs whole numbers");
  const auto size = static_cast<int64_t>(length_of(object, budget));
  const int64_t step = by.is_none() ? 1 : std::clamp(by.integer(), -size - 1, size + 1);
  if (step == 0) fail("a slice's step is 0");
  const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
  const auto clamp = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    const int64_t location = bound.integer() < 0 ? bound.integer() + size : bound.integer();
    return std::min(std::max(location, least), most);
  };
  const int64_t first = clamp(begin, step > 0 ? 0 : size - 1), last = clamp(end, step > 0 ? size : -1);
  if (object.text() && step == 1) {  // the usual one, without a value for each character
    const std::string& text = *object.text();
    budget.make_text(text.size());
    const size_t from = character_offset(text, 0, static_cast<size_t>(first));
    const size_t to = character_offset(text, from, static_cast<size_t>(std::max<int64_t>(last - first, 0)));
    return text.substr(from, to - from);
  }
  const List characters = object.text() ? elements(object, budget) : List{};
  const List& items = object.text() ? characters : *object.list();
  const int64_t way = step > 0 ? last - first : first - last;
  budget.make_list(way > 0 ? static_cast<size_t>((way - 1) / std::abs(step) + 1) : 0);
  List chosen;
  for (int64_t i = first; step > 0 ? i < last : i > last; i += step) chosen.push_back(items[i]);
  if (!object.text()) return chosen;
  return joined(chosen, "", [](const Value& character) { return *character.text(); });
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

size_t find_text(const std::string& text, const std::string& part, size_t from, Budget& budget) {
  const char* found = part.empty() ? text.data() + from
                                   : static_cast<const char*>(
                                         ::memmem(text.data() + from, text.size() - from, part.data(), part.size()));
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

size_t length_of(const Value& value, Budget& budget) {
  if (const List* list = value.list()) return list->size();
  if (const Dict* dict = value.dict()) return dict->items.size();
  if (value.is_undefined()) return 0;
  if (!value.text()) fail("a " + value.type_name() + " has no length");
  budget.read(value.text()->size());
  return count_code_points(*value.text());
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
