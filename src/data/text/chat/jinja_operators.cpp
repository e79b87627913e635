// What Python's operators do with values of templates.
#include <algorithm>
#include <cmath>
#include "data/text/chat/jinja_text.h"
#include "data/text/unicode/utf8.h"

namespace linnet::jinja {
namespace {

Value checked(int64_t a, int64_t b, bool (*operation)(int64_t, int64_t, int64_t*)) {
  int64_t result = 0;
  if (operation(a, b, &result)) fail("a whole number is out of range");
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
  Value result = 1;
  if (std::abs(a.number()) < 2) return static_cast<int64_t>(std::pow(a.number(), b.number()));
  for (int64_t i = 0; i < b.integer(); ++i)
    result = checked(result.integer(), a.integer(),
                     [](int64_t x, int64_t y, int64_t* r) { return __builtin_mul_overflow(x, y, r); });
  return result;
}

int64_t floor_division(int64_t a, int64_t b) {
  if (b == -1)
    return checked(0, a, [](int64_t x, int64_t y, int64_t* r) { return __builtin_sub_overflow(x, y, r); }).integer();
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

}  // namespace

Value add(const Value& a, const Value& b, Budget& budget) {
  if (a.is_integer() && b.is_integer())
    return checked(a.integer(), b.integer(),
                   [](int64_t x, int64_t y, int64_t* r) { return __builtin_add_overflow(x, y, r); });
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

Value arithmetic(const std::string& op, const Value& a, const Value& b, Budget& budget) {
  if (op == "*" && (a.text() || a.list()) && b.is_integer()) return repeated(a, b.integer(), budget);
  if (op == "*" && (b.text() || b.list()) && a.is_integer()) return repeated(b, a.integer(), budget);
  if (!a.is_number() || !b.is_number())
    fail("'" + op + "' needs numbers, not a " + a.type_name() + " and a " + b.type_name());
  const bool whole = a.is_integer() && b.is_integer();
  if ((op == "/" || op == "//" || op == "%") && b.number() == 0) fail("a division by zero");
  if (op == "-" && whole)
    return checked(a.integer(), b.integer(),
                   [](int64_t x, int64_t y, int64_t* r) { return __builtin_sub_overflow(x, y, r); });
  if (op == "*" && whole)
    return checked(a.integer(), b.integer(),
                   [](int64_t x, int64_t y, int64_t* r) { return __builtin_mul_overflow(x, y, r); });
  if (op == "//" && whole) return floor_division(a.integer(), b.integer());
  if (op == "%" && whole)
    return b.integer() == -1 ? Value(0) : Value(a.integer() - floor_division(a.integer(), b.integer()) * b.integer());
  if (op == "-") return a.number() - b.number();
  if (op == "*") return a.number() * b.number();
  if (op == "/") return a.number() / b.number();
  if (op == "//") return std::floor(a.number() / b.number());
  if (op == "%") return a.number() - std::floor(a.number() / b.number()) * b.number();
  return power(a, b);
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
    if (at >= 0 && at < std::ssize(list)) return list[static_cast<size_t>(at)];
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

}  // namespace linnet::jinja
