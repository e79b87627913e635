// What Python's operators do with values of templates.
#include <algorithm>
#include <cmath>

#include "data/text/chat/jinja_program.h"
#include "data/text/unicode/utf8.h"

namespace linnet::jinja {
namespace {

Value checked(int64_t a, int64_t b, bool (*operation)(int64_t, int64_t, int64_t*)) {
  int64_t result = 0;
  if (operation(a, b, &result)) fail("a whole number is out of range");
  return result;
}

Value repeated(const Value& value, int64_t count, const Budget& budget) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  const size_t size = value.text() ? value.text()->size() : value.list()->size() * sizeof(Value);
  if (size > 0 && times > budget.text / size) budget.check_text(budget.text + 1);
  if (value.text()) {
    std::string text;
    for (size_t i = 0; i < times && size > 0; ++i) text += *value.text();
    return text;
  }
  List list;
  for (size_t i = 0; i < times && size > 0; ++i) list.insert(list.end(), value.list()->begin(), value.list()->end());
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

Value add(const Value& a, const Value& b, const Budget& budget) {
  if (a.is_integer() && b.is_integer())
    return checked(a.integer(), b.integer(),
                   [](int64_t x, int64_t y, int64_t* r) { return __builtin_add_overflow(x, y, r); });
  if (a.is_number() && b.is_number()) return a.number() + b.number();
  if (a.text() && b.text()) {
    budget.check_text(a.text()->size() + b.text()->size());
    return *a.text() + *b.text();
  }
  if (a.list() && b.list()) {
    budget.check_text((a.list()->size() + b.list()->size()) * sizeof(Value));
    List list = *a.list();
    list.insert(list.end(), b.list()->begin(), b.list()->end());
    return list;
  }
  for (const Value* value : {&a, &b})
    if (const Undefined* missing = value->as<Undefined>()) fail("'" + missing->name + "' is not defined");
  fail("a " + a.type_name() + " and a " + b.type_name() + " cannot be added");
}

Value arithmetic(const std::string& op, const Value& a, const Value& b, const Budget& budget) {
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

bool contains(const Value& whole, const Value& part) {
  if (whole.text()) {
    if (!part.text()) fail("'in' looks for a text in a text, not for a " + part.type_name());
    return whole.text()->find(*part.text()) != std::string::npos;
  }
  if (const Dict* dict = whole.dict()) return part.text() && dict->find(*part.text());
  if (whole.is_undefined()) return false;
  if (!whole.list()) fail("'in' cannot look into a " + whole.type_name());
  return std::ranges::any_of(*whole.list(), [&](const Value& item) { return equal(item, part); });
}

Value get_item(const Value& value, const Value& key) {
  if (const Undefined* missing = value.as<Undefined>())
    fail("'" + missing->name + "' is not defined, and '" + to_text(key) + "' is asked of it");
  if (const Dict* dict = value.dict()) {
    const Value* found = key.text() ? dict->find(*key.text()) : nullptr;
    return found ? *found : Value(Undefined{to_text(key)});
  }
  if ((value.list() || value.text()) && key.is_integer()) {
    const List items = value.list() ? List{} : elements(value);
    const List& list = value.list() ? *value.list() : items;
    const int64_t at = key.integer() < 0 ? key.integer() + static_cast<int64_t>(list.size()) : key.integer();
    if (at >= 0 && at < static_cast<int64_t>(list.size())) return list[static_cast<size_t>(at)];
  }
  return Undefined{to_text(key)};
}

}  // namespace linnet::jinja
