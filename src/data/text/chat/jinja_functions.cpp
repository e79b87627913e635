// Filters, tests, methods and functions of the template language.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <span>
#include "base/numbers.h"
#include "base/text.h"
#include "data/text/chat/jinja_program.h"
#include "data/text/unicode/utf8.h"

namespace linnet::jinja {
namespace {
// ASCII only: chat templates change the case of roles and type names. Words begin behind `breaks`, or all but letters.
std::string capitalized(const std::string& text, bool each_word, std::string_view breaks = "") {
  std::string result = lower_ascii(text);
  bool starts = true;
  for (char& c : result) {
    if (starts && c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
    starts =
        each_word && (breaks.empty() ? !std::isalpha(static_cast<unsigned char>(c)) : breaks.find(c) != breaks.npos);
  }
  return result;
}

// "a.b" of a value, as in map(attribute=...) and selectattr().
Value attribute_of(Value value, const std::string& path, Budget& budget) {
  budget.read(path.size());
  for (const std::string_view name : linnet::split(path, '.')) {
    if (value.is_undefined()) return value;
    value = get_item(value, std::string(name), budget);
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

Value replace_filter(const Value& value, const Arguments& arguments, Budget& budget) {
  const std::string text = to_text(value, budget), from = text_argument(arguments, 0, "old", ""),
                    to = text_argument(arguments, 1, "new", "");
  int64_t count = integer_argument(arguments, 2, "count", -1);
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

Value select(const Value& value, const Arguments& arguments, bool by_attribute, bool keep, Budget& budget) {
  size_t next = 0;
  const std::string path = by_attribute ? text_argument(arguments, next++, "attribute", "") : "";
  const std::string name = text_argument(arguments, next++, "test", "");
  const Test test = name.empty() ? nullptr : find_test(name);
  if (!name.empty() && !test) fail("the test '" + name + "' is not supported");
  Arguments rest;
  for (; next < arguments.positional.size(); ++next) rest.positional.push_back(arguments.positional[next]);
  List result;
  for (const Value& item : elements(value, budget)) {
    const Value looked = by_attribute ? attribute_of(item, path, budget) : item;
    if ((test ? test(looked, rest, budget) : looked.truth()) == keep) result.push_back(item);
  }
  return result;
}

Value map_filter(const Value& value, const Arguments& arguments, Budget& budget) {
  const Value* attribute = arguments.find(arguments.positional.size(), "attribute");
  const Value* otherwise = arguments.find(arguments.positional.size(), "default");
  List result;
  Arguments rest;
  Filter filter = nullptr;
  if (!attribute) {
    if (arguments.positional.empty()) fail("'map' needs a filter or an attribute");
    const std::string& name = text_of(arguments.positional[0], "map");
    filter = find_filter(name);
    if (!filter) fail("the filter '" + name + "' is not supported");
    rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
  }
  budget.make_list(rest.positional.size());
  for (const Value& item : elements(value, budget)) {
    Value mapped = filter ? filter(item, rest, budget) : attribute_of(item, text_of(*attribute, "map"), budget);
    result.push_back(mapped.is_undefined() && otherwise ? *otherwise : mapped);
  }
  return result;
}

Value sort_filter(const Value& value, const Arguments& arguments, Budget& budget) {
  const Value* attribute = arguments.find(2, "attribute");
  const bool reverse = flag_argument(arguments, 0, "reverse");
  const auto key = [&](const Value& item) {
    const Value chosen = attribute ? attribute_of(item, text_of(*attribute, "sort"), budget) : item;
    if (!chosen.text() || flag_argument(arguments, 1, "case_sensitive")) return chosen;
    budget.read(chosen.text()->size());
    return Value(lower_ascii(*chosen.text()));
  };
  List items = elements(value, budget);
  std::ranges::stable_sort(items, [&](const Value& a, const Value& b) {
    return (reverse ? compare(key(b), key(a), budget) : compare(key(a), key(b), budget)) < 0;
  });
  return items;
}

Value unique_filter(const Value& value, const Arguments&, Budget& budget) {
  List result;
  for (const Value& item : elements(value, budget))
    if (std::ranges::none_of(result, [&](const Value& seen) { return equal(seen, item, budget); }))
      result.push_back(item);
  return result;
}

Value indent_filter(const Value& value, const Arguments& arguments, Budget& budget) {
  const Value* width = arguments.find(0, "width");
  const int64_t count = width && width->text() ? 0 : integer_argument(arguments, 0, "width", 4);
  if (count < 0 || count > 1000) fail("'indent' takes 0 to 1000 spaces");
  const std::string margin = width && width->text() ? *width->text() : std::string(static_cast<size_t>(count), ' ');
  const bool first = flag_argument(arguments, 1, "first"), blank = flag_argument(arguments, 2, "blank");
  const std::string& text = text_of(value, "indent");
  std::string result;
  for (size_t at = 0, number = 0; at <= text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    budget.append(margin.size() + end - at + 1);
    if (number > 0) result += '\n';
    if ((number > 0 || first) && (end > at || blank || number == 0)) result += margin;
    result.append(text, at, end - at);
    at = end + 1;
  }
  return result;
}

Value tojson_filter(const Value& value, const Arguments& arguments, Budget& budget) {
  // The positions of transformers' filter: tojson(x, ensure_ascii, indent, separators, sort_keys).
  const int64_t indent = integer_argument(arguments, 1, "indent", -1);
  if (indent > 1000) fail("'tojson' takes an indent of at most 1000 spaces");
  if (arguments.find(2, "separators")) fail("the separators of 'tojson' are not supported");
  return to_json(
      value, budget, static_cast<int>(std::max<int64_t>(indent, -1)), flag_argument(arguments, 3, "sort_keys"));
}

Value default_filter(const Value& value, const Arguments& arguments, Budget&) {
  const Value* otherwise = arguments.find(0, "default_value");
  const bool missing = value.is_undefined() || (flag_argument(arguments, 1, "boolean") && !value.truth());
  return missing ? (otherwise ? *otherwise : Value("")) : value;
}

Value end_of(const Value& value, bool last, Budget& budget) {
  const List items = value.list() ? List{} : elements(value, budget);
  const List& all = value.list() ? *value.list() : items;
  return all.empty() ? undefined(last ? "last" : "first", budget) : last ? all.back() : all.front();
}

// Not a number (NaN) for a text that is none.
double to_real(const Value& value, Budget& budget) {
  if (!value.text()) return value.number();
  budget.read(value.text()->size());
  std::string_view text = trimmed(*value.text(), " \t\r\n");
  if (text.starts_with('+')) text.remove_prefix(1);
  return parse_number<double>(text).value_or(NAN);
}

Value to_integer(const Value& value, const Arguments& arguments, Budget& budget) {
  const Value otherwise = integer_argument(arguments, 0, "default", 0);
  if (value.is_integer()) return value.integer();
  const double number = to_real(value, budget);
  return std::abs(number) < 9e18 ? Value(static_cast<int64_t>(number)) : otherwise;
}

Value extreme(const Value& value, int sign, Budget& budget) {
  const List items = elements(value, budget);
  if (items.empty()) return undefined("the extreme of nothing", budget);
  Value best = items[0];
  for (const Value& item : items)
    if (sign * compare(item, best, budget) > 0) best = item;
  return best;
}

// Whether the text begins (or ends) with the argument or, for a list, with one of its items.
bool touches(const std::string& text, const Value& part, bool begin, Budget& budget) {
  const auto holds = [&](const Value& one) {
    const std::string& piece = text_of(one, begin ? "startswith" : "endswith");
    budget.read(std::min(piece.size(), text.size()));
    return begin ? text.starts_with(piece) : text.ends_with(piece);
  };
  return part.list() ? std::ranges::any_of(*part.list(), holds) : holds(part);
}

Value split_method(const Value& value, const Arguments& arguments, Budget& budget) {
  const std::string& text = *value.text();
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

Value range(const Arguments& arguments, Budget& budget) {
  constexpr int64_t kLongest = 100'000;  // of Jinja's sandbox
  const bool one = arguments.positional.size() == 1;
  const int64_t begin = one ? 0 : integer_argument(arguments, 0, "begin", 0);
  const int64_t end = integer_argument(arguments, one ? 0 : 1, "end", 0),
                step = integer_argument(arguments, 2, "step", 1);
  if (step == 0) fail("the step of a range is 0");
  List list;
  if (std::abs(begin) > INT64_MAX / 4 || std::abs(end) > INT64_MAX / 4 || std::abs(step) > INT64_MAX / 4)
    fail("a range is out of range");
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    if (std::ssize(list) == kLongest) fail("a range of more than " + std::to_string(kLongest) + " numbers");
    budget.make_list(1);
    list.emplace_back(i);
  }
  return list;
}

Value time_text(const Arguments& arguments) {
  const std::string& format = text_of(other(arguments), "strftime_now");
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char buffer[1024];
  return std::string(buffer, std::strftime(buffer, sizeof buffer, format.c_str(), &parts));
}

Dict dict_of(const Arguments& arguments, Budget& budget) {
  Dict dict;
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].dict()) fail("a dictionary is made of names, or of another dictionary");
    for (const auto& [name, value] : arguments.positional[0].dict()->items)
      budget.make_list(4), budget.take(name.size());
    dict.items = arguments.positional[0].dict()->items;
  }
  budget.make_list(4 * arguments.named.size());
  budget.step(arguments.named.size() * (dict.items.size() + arguments.named.size()) / 4);
  for (const auto& [name, value] : arguments.named) dict.set(name, value);
  return dict;
}

using V = const Value&;
using A = const Arguments&;
using B = Budget&;

template <class Function> struct Row {
  std::string_view name;
  Function function;
};

template <class Function> Function function_of(std::span<const Row<Function>> rows, std::string_view name) {
  const auto row = std::ranges::find(rows, name, &Row<Function>::name);
  return row == rows.end() ? nullptr : row->function;
}

constexpr Row<Filter> kFilters[] = {
    {"abs",
        [](V v, A, B b) -> Value {
          return v.is_integer() ? v.integer() < 0 ? operate("-", 0, v.integer(), b) : Value(v.integer())
                                : Value(std::abs(v.number()));
        }},
    {"capitalize", [](V v, A, B b) -> Value { return capitalized(to_text(v, b), false); }},
    {"count", [](V v, A, B b) -> Value { return length_of(v, b); }},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort",
        [](V v, A, B b) -> Value {
          if (!v.dict()) fail("'dictsort' needs a dictionary, not a " + v.type_name());
          List pairs = pairs_of(*v.dict(), b);
          std::ranges::stable_sort(
              pairs, [&](const Value& x, const Value& y) { return compare((*x.list())[0], (*y.list())[0], b) < 0; });
          return pairs;
        }},
    {"first", [](V v, A, B b) -> Value { return end_of(v, false, b); }},
    {"float",
        [](V v, A, B b) -> Value {
          const double number = to_real(v, b);
          return std::isnan(number) ? 0.0 : number;
        }},
    {"indent", indent_filter},
    {"int", [](V v, A a, B b) -> Value { return to_integer(v, a, b); }},
    {"items",
        [](V v, A, B b) -> Value {
          if (v.is_undefined()) return List{};
          if (!v.dict()) fail("'items' needs a dictionary, not a " + v.type_name());
          return pairs_of(*v.dict(), b);
        }},
    {"join", join_filter},
    {"last", [](V v, A, B b) -> Value { return end_of(v, true, b); }},
    {"length", [](V v, A, B b) -> Value { return length_of(v, b); }},
    {"list", [](V v, A, B b) -> Value { return elements(v, b); }},
    {"lower", [](V v, A, B b) -> Value { return lower_ascii(to_text(v, b)); }},
    {"map", map_filter},
    {"max", [](V v, A, B b) -> Value { return extreme(v, 1, b); }},
    {"min", [](V v, A, B b) -> Value { return extreme(v, -1, b); }},
    {"reject", [](V v, A a, B b) -> Value { return select(v, a, false, false, b); }},
    {"rejectattr", [](V v, A a, B b) -> Value { return select(v, a, true, false, b); }},
    {"replace", replace_filter},
    {"reverse",
        [](V v, A, B b) -> Value {
          List items = elements(v, b);
          std::ranges::reverse(items);
          if (!v.text()) return items;
          return joined(items, "", [](const Value& item) { return *item.text(); });
        }},
    {"safe", [](V v, A, B) -> Value { return v; }},
    {"select", [](V v, A a, B b) -> Value { return select(v, a, false, true, b); }},
    {"selectattr", [](V v, A a, B b) -> Value { return select(v, a, true, true, b); }},
    {"sort", sort_filter},
    {"string", [](V v, A, B b) -> Value { return v.text() ? v : Value(to_text(v, b)); }},
    {"sum",
        [](V v, A, B b) -> Value {
          Value sum = 0;
          for (const Value& item : elements(v, b)) sum = operate("+", sum, item, b);
          return sum;
        }},
    {"title", [](V v, A, B b) -> Value { return capitalized(to_text(v, b), true, " \t\n\v\f\r-({[<"); }},
    {"tojson", tojson_filter},
    {"trim", [](V v, A a, B b) -> Value { return strip_of(to_text(v, b), a, true, true, b); }},
    {"unique", unique_filter},
    {"upper", [](V v, A, B b) -> Value { return upper_ascii(to_text(v, b)); }},
};

constexpr Row<Test> kTests[] = {
    {"!=", [](V v, A a, B b) { return !equal(v, other(a), b); }},
    {"<", [](V v, A a, B b) { return compare(v, other(a), b) < 0; }},
    {"==", [](V v, A a, B b) { return equal(v, other(a), b); }},
    {">", [](V v, A a, B b) { return compare(v, other(a), b) > 0; }},
    {"boolean", [](V v, A, B) { return v.as<bool>() != nullptr; }},
    {"callable", [](V v, A, B) { return v.function() != nullptr; }},
    {"defined", [](V v, A, B) { return !v.is_undefined(); }},
    {"divisibleby",
        [](V v, A a, B b) {
          return other(a).integer() != 0 && operate("%", v.integer(), other(a).integer(), b).integer() == 0;
        }},
    {"eq", [](V v, A a, B b) { return equal(v, other(a), b); }},
    {"equalto", [](V v, A a, B b) { return equal(v, other(a), b); }},
    {"even", [](V v, A, B) { return v.integer() % 2 == 0; }},
    {"false", [](V v, A, B) { return v.as<bool>() && !*v.as<bool>(); }},
    {"float", [](V v, A, B) { return v.as<double>() != nullptr; }},
    {"ge", [](V v, A a, B b) { return compare(v, other(a), b) >= 0; }},
    {"gt", [](V v, A a, B b) { return compare(v, other(a), b) > 0; }},
    {"in", [](V v, A a, B b) { return holds("in", v, other(a), b); }},
    {"integer", [](V v, A, B) { return v.as<int64_t>() != nullptr; }},
    {"iterable", [](V v, A, B) { return v.text() || v.list() || v.dict() || v.is_undefined(); }},
    {"le", [](V v, A a, B b) { return compare(v, other(a), b) <= 0; }},
    {"lower", [](V v, A, B b) { return v.text() && lower_ascii(to_text(v, b)) == *v.text(); }},
    {"lt", [](V v, A a, B b) { return compare(v, other(a), b) < 0; }},
    {"mapping", [](V v, A, B) { return v.dict() != nullptr; }},
    {"ne", [](V v, A a, B b) { return !equal(v, other(a), b); }},
    {"none", [](V v, A, B) { return v.is_none(); }},
    {"number", [](V v, A, B) { return v.is_number(); }},
    {"odd", [](V v, A, B) { return v.integer() % 2 != 0; }},
    {"sameas", [](V v, A a, B b) { return v.type_name() == other(a).type_name() && equal(v, other(a), b); }},
    {"sequence", [](V v, A, B) { return v.text() || v.list() || v.dict(); }},
    {"string", [](V v, A, B) { return v.text() != nullptr; }},
    {"true", [](V v, A, B) { return v.as<bool>() && *v.as<bool>(); }},
    {"undefined", [](V v, A, B) { return v.is_undefined(); }},
    {"upper", [](V v, A, B b) { return v.text() && upper_ascii(to_text(v, b)) == *v.text(); }},
};

constexpr Row<Filter> kTextMethods[] = {
    {"capitalize", [](V v, A, B b) -> Value { return capitalized(to_text(v, b), false); }},
    {"count",
        [](V v, A a, B b) -> Value {
          const std::string &text = *v.text(), &part = text_of(other(a), "count");
          if (part.empty()) fail("'count' needs a text to look for");
          int64_t count = 0;
          for (size_t at = 0; (at = find_text(text, part, at, b)) != text.npos; at += part.size()) ++count;
          return count;
        }},
    {"endswith", [](V v, A a, B b) -> Value { return touches(*v.text(), other(a), false, b); }},
    {"find",
        [](V v, A a, B b) -> Value {
          const size_t at = find_text(*v.text(), text_of(other(a), "find"), 0, b);
          return at == std::string::npos ? Value(-1) : Value(length_of(v.text()->substr(0, at), b));
        }},
    {"isdigit",
        [](V v, A, B b) -> Value {
          b.read(v.text()->size());
          return is_digits(*v.text());
        }},
    {"join", [](V v, A a, B b) { return join_filter(other(a), {.positional = {v}, .named = {}}, b); }},
    {"lower", [](V v, A, B b) -> Value { return lower_ascii(to_text(v, b)); }},
    {"lstrip", [](V v, A a, B b) -> Value { return strip_of(*v.text(), a, true, false, b); }},
    {"replace", replace_filter},
    {"rstrip", [](V v, A a, B b) -> Value { return strip_of(*v.text(), a, false, true, b); }},
    {"split", split_method},
    {"splitlines",
        [](V v, A, B b) -> Value {
          const std::string& text = *v.text();
          List lines;
          for (size_t at = 0; at < text.size();) {
            const size_t end = std::min(text.find('\n', at), text.size());
            b.make_text(end - at + sizeof(Value));
            lines.emplace_back(text.substr(at, end - at));
            at = end + 1;
          }
          return lines;
        }},
    {"startswith", [](V v, A a, B b) -> Value { return touches(*v.text(), other(a), true, b); }},
    {"strip", [](V v, A a, B b) -> Value { return strip_of(*v.text(), a, true, true, b); }},
    {"title", [](V v, A, B b) -> Value { return capitalized(to_text(v, b), true); }},
    {"upper", [](V v, A, B b) -> Value { return upper_ascii(to_text(v, b)); }},
};

constexpr Row<Filter> kDictMethods[] = {
    {"get",
        [](V v, A a, B b) -> Value {
          const Value* found = other(a).text() ? find_key(*v.dict(), *other(a).text(), b) : nullptr;
          const Value* otherwise = a.find(1, "default");
          return found ? *found : otherwise ? *otherwise : Value(None{});
        }},
    {"items", [](V v, A, B b) -> Value { return pairs_of(*v.dict(), b); }},
    {"keys", [](V v, A, B b) -> Value { return elements(v, b); }},
    {"values",
        [](V v, A, B b) -> Value {
          List values;
          b.make_list(v.dict()->items.size());
          for (const auto& [key, item] : v.dict()->items) values.push_back(item);
          return values;
        }},
};
}  // namespace

Filter find_filter(std::string_view name) { return function_of<Filter>(kFilters, name); }

Test find_test(std::string_view name) { return function_of<Test>(kTests, name); }

Value find_method(const Value& value, std::string_view name, Budget& budget) {
  budget.take(256);  // of a function and what it holds
  const bool is_dict = value.dict() && !value.dict()->is_namespace;
  const Filter method = value.text() ? function_of<Filter>(kTextMethods, name)
                        : is_dict    ? function_of<Filter>(kDictMethods, name)
                                     : nullptr;
  if (!method) return {};
  // Captures the value, so that it outlives the function.
  return Function([method, value, &budget](A a) { return method(value, a, budget); });
}

void add_functions(std::map<std::string, Value>& names, Budget& budget) {
  names["range"] = Function([&budget](A a) -> Value { return range(a, budget); });
  names["dict"] = Function([&budget](A a) -> Value { return dict_of(a, budget); });
  names["namespace"] = Function([&budget](A a) -> Value {
    Dict dict = dict_of(a, budget);
    dict.is_namespace = true;
    return dict;
  });
  names["raise_exception"] =
      Function([&budget](A a) -> Value { fail("the template says: " + to_text(other(a), budget).substr(0, 2000)); });
  names["strftime_now"] = Function(time_text);
}
}  // namespace linnet::jinja
