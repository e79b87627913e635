// Filters, tests, methods and functions of the template language.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>

#include "text/chat/jinja_program.h"
#include "text/unicode/utf8.h"

namespace linnet::jinja {
namespace {

constexpr const char* kSpace = " \t\n\r\f\v";

const std::string& text_of(const Value& value, const char* what) {
  if (const Undefined* missing = value.as<Undefined>()) fail("'" + missing->name + "' is not defined");
  if (!value.text()) fail(std::string(what) + " needs a text, not a " + value.type_name());
  return *value.text();
}

std::string text_argument(const Arguments& arguments, size_t place, const char* name, const std::string& otherwise) {
  const Value* given = arguments.find(place, name);
  return given && !given->is_none() ? text_of(*given, name) : otherwise;
}

int64_t integer_argument(const Arguments& arguments, size_t place, const char* name, int64_t otherwise) {
  const Value* given = arguments.find(place, name);
  if (!given || given->is_none()) return otherwise;
  if (!given->is_integer()) fail(std::string("'") + name + "' needs a whole number, not a " + given->type_name());
  return given->integer();
}

bool flag_argument(const Arguments& arguments, size_t place, const char* name) {
  const Value* given = arguments.find(place, name);
  return given && given->truth();
}

std::string stripped(const std::string& text, const std::string& characters, bool left, bool right) {
  const size_t begin = left ? text.find_first_not_of(characters) : 0;
  if (begin == text.npos) return "";
  const size_t end = right ? text.find_last_not_of(characters) + 1 : text.size();
  return text.substr(begin, end - std::min(begin, end));
}

// ASCII letters only: chat templates change the case of roles and names of types.
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

// "a.b" of a value, as map(attribute=...) and selectattr() name it.
Value attribute_of(Value value, const std::string& path) {
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    if (value.is_undefined()) return value;
    value = get_item(value, path.substr(at, end - at));
    at = end + 1;
  }
  return value;
}

// --- filters ---

Value select(const Value& value, const Arguments& arguments, bool by_attribute, bool keep) {
  size_t next = 0;
  const std::string path = by_attribute ? text_argument(arguments, next++, "attribute", "") : "";
  const std::string name = text_argument(arguments, next++, "test", "");
  const Test test = name.empty() ? nullptr : find_test(name);
  if (!name.empty() && !test) fail("the test '" + name + "' is not supported");
  Arguments rest;
  for (; next < arguments.positional.size(); ++next) rest.positional.push_back(arguments.positional[next]);
  List result;
  for (const Value& item : elements(value)) {
    const Value looked = by_attribute ? attribute_of(item, path) : item;
    if ((test ? test(looked, rest) : looked.truth()) == keep) result.push_back(item);
  }
  return result;
}

Value map_filter(const Value& value, const Arguments& arguments, const Budget& budget) {
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
  for (const Value& item : elements(value)) {
    Value mapped = filter ? filter(item, rest, budget) : attribute_of(item, text_of(*attribute, "map"));
    result.push_back(mapped.is_undefined() && otherwise ? *otherwise : mapped);
  }
  return result;
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

Value sort_filter(const Value& value, const Arguments& arguments, const Budget&) {
  const Value* attribute = arguments.find(2, "attribute");
  const bool reverse = flag_argument(arguments, 0, "reverse");
  const auto key = [&](const Value& item) {
    const Value chosen = attribute ? attribute_of(item, text_of(*attribute, "sort")) : item;
    return chosen.text() && !flag_argument(arguments, 1, "case_sensitive") ? Value(with_case(*chosen.text(), false))
                                                                           : chosen;
  };
  List items = elements(value);
  std::ranges::stable_sort(items, [&](const Value& a, const Value& b) {
    return (reverse ? compare(key(b), key(a)) : compare(key(a), key(b))) < 0;
  });
  return items;
}

Value unique_filter(const Value& value, const Arguments&, const Budget&) {
  List result;
  for (const Value& item : elements(value))
    if (std::ranges::none_of(result, [&](const Value& seen) { return equal(seen, item); })) result.push_back(item);
  return result;
}

Value indent_filter(const Value& value, const Arguments& arguments, const Budget& budget) {
  const Value* width = arguments.find(0, "width");
  const int64_t count = width && width->text() ? 0 : integer_argument(arguments, 0, "width", 4);
  if (count < 0 || count > 1000) fail("'indent' takes 0 to 1000 spaces");
  const std::string margin = width && width->text() ? *width->text() : std::string(static_cast<size_t>(count), ' ');
  const bool first = flag_argument(arguments, 1, "first"), blank = flag_argument(arguments, 2, "blank");
  const std::string& text = text_of(value, "indent");
  std::string result;
  for (size_t at = 0, number = 0; at <= text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (number > 0) result += '\n';
    if ((number > 0 || first) && (end > at || blank || number == 0)) result += margin;
    result += text.substr(at, end - at);
    budget.check_text(result.size());
    at = end + 1;
  }
  return result;
}

Value tojson_filter(const Value& value, const Arguments& arguments, const Budget& budget) {
  // The argument's place is that of transformers' filter: tojson(x, ensure_ascii, indent, separators, sort_keys).
  const int64_t indent = integer_argument(arguments, 1, "indent", -1);
  if (indent > 1000) fail("'tojson' takes an indent of at most 1000 spaces");
  if (arguments.find(2, "separators")) fail("the separators of 'tojson' are not supported");
  std::string text =
      to_json(value, static_cast<int>(std::max<int64_t>(indent, -1)), flag_argument(arguments, 3, "sort_keys"));
  budget.check_text(text.size());
  return text;
}

Value default_filter(const Value& value, const Arguments& arguments, const Budget&) {
  const Value* otherwise = arguments.find(0, "default_value");
  const bool missing = value.is_undefined() || (flag_argument(arguments, 1, "boolean") && !value.truth());
  return missing ? (otherwise ? *otherwise : Value("")) : value;
}

Value end_of(const Value& value, bool last) {
  const List items = elements(value);
  return items.empty() ? Value(Undefined{last ? "last" : "first"}) : last ? items.back() : items.front();
}

Value to_integer(const Value& value, const Arguments& arguments) {
  const Value otherwise = integer_argument(arguments, 0, "default", 0);
  if (value.is_integer()) return value.integer();
  try {
    const double number = value.text() ? std::stod(*value.text()) : value.number();
    if (std::abs(number) < 9e18) return static_cast<int64_t>(number);
  } catch (const std::exception&) {
  }
  return otherwise;
}

Value extreme(const Value& value, int sign) {
  const List items = elements(value);
  if (items.empty()) return Undefined{"the extreme of nothing"};
  Value best = items[0];
  for (const Value& item : items)
    if (sign * compare(item, best) > 0) best = item;
  return best;
}

Value strip_of(const Value& value, const Arguments& arguments, bool left, bool right) {
  return stripped(to_text(value), text_argument(arguments, 0, "chars", kSpace), left, right);
}

using A = const Arguments&;
using V = const Value&;
using B = const Budget&;
const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> all = {
      {"abs",
       [](V v, A, B) -> Value { return v.is_integer() ? Value(std::abs(v.integer())) : Value(std::abs(v.number())); }},
      {"capitalize", [](V v, A, B) -> Value { return capitalized(to_text(v), false); }},
      {"count", [](V v, A, B) -> Value { return length_of(v); }},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort",
       [](V v, A a, B b) -> Value {
         if (!v.dict()) fail("'dictsort' needs a dictionary, not a " + v.type_name());
         Arguments by = a;
         by.named.emplace_back("attribute", "0");
         List pairs = pairs_of(*v.dict());
         std::ranges::stable_sort(
             pairs, [](const Value& x, const Value& y) { return compare((*x.list())[0], (*y.list())[0]) < 0; });
         static_cast<void>(b);
         return pairs;
       }},
      {"e", [](V v, A, B) -> Value { return to_text(v); }},
      {"first", [](V v, A, B) -> Value { return end_of(v, false); }},
      {"float", [](V v, A, B) -> Value { return v.text() ? std::strtod(v.text()->c_str(), nullptr) : v.number(); }},
      {"indent", indent_filter},
      {"int", [](V v, A a, B) -> Value { return to_integer(v, a); }},
      {"items",
       [](V v, A, B) -> Value {
         if (v.is_undefined()) return List{};
         if (!v.dict()) fail("'items' needs a dictionary, not a " + v.type_name());
         return pairs_of(*v.dict());
       }},
      {"join", join_filter},
      {"last", [](V v, A, B) -> Value { return end_of(v, true); }},
      {"length", [](V v, A, B) -> Value { return length_of(v); }},
      {"list", [](V v, A, B) -> Value { return elements(v); }},
      {"lower", [](V v, A, B) -> Value { return with_case(to_text(v), false); }},
      {"map", map_filter},
      {"max", [](V v, A, B) -> Value { return extreme(v, 1); }},
      {"min", [](V v, A, B) -> Value { return extreme(v, -1); }},
      {"reject", [](V v, A a, B) -> Value { return select(v, a, false, false); }},
      {"rejectattr", [](V v, A a, B) -> Value { return select(v, a, true, false); }},
      {"replace",
       [](V v, A a, B b) -> Value {
         return replaced(to_text(v), text_argument(a, 0, "old", ""), text_argument(a, 1, "new", ""),
                         integer_argument(a, 2, "count", -1), b);
       }},
      {"reverse",
       [](V v, A, B) -> Value {
         List items = elements(v);
         std::ranges::reverse(items);
         std::string text;
         for (const Value& item : items)
           if (v.text()) text += *item.text();
         return v.text() ? Value(text) : Value(items);
       }},
      {"safe", [](V v, A, B) -> Value { return v; }},
      {"select", [](V v, A a, B) -> Value { return select(v, a, false, true); }},
      {"selectattr", [](V v, A a, B) -> Value { return select(v, a, true, true); }},
      {"sort", sort_filter},
      {"string", [](V v, A, B) -> Value { return to_text(v); }},
      {"sum",
       [](V v, A, B b) -> Value {
         Value sum = 0;
         for (const Value& item : elements(v)) sum = add(sum, item, b);
         return sum;
       }},
      {"title", [](V v, A, B) -> Value { return capitalized(to_text(v), true); }},
      {"tojson", tojson_filter},
      {"trim", [](V v, A a, B) -> Value { return strip_of(v, a, true, true); }},
      {"unique", unique_filter},
      {"upper", [](V v, A, B) -> Value { return with_case(to_text(v), true); }},
  };
  return all;
}

// --- tests ---

const Value& other(const Arguments& arguments) {
  if (arguments.positional.empty()) fail("a test needs something to compare with");
  return arguments.positional[0];
}

const std::map<std::string, Test>& tests() {
  static const std::map<std::string, Test> all = {
      {"!=", [](V v, A a) { return !equal(v, other(a)); }},
      {"<", [](V v, A a) { return compare(v, other(a)) < 0; }},
      {"==", [](V v, A a) { return equal(v, other(a)); }},
      {">", [](V v, A a) { return compare(v, other(a)) > 0; }},
      {"boolean", [](V v, A) { return v.as<bool>() != nullptr; }},
      {"callable", [](V v, A) { return v.function() != nullptr; }},
      {"defined", [](V v, A) { return !v.is_undefined(); }},
      {"divisibleby", [](V v, A a) { return other(a).integer() != 0 && v.integer() % other(a).integer() == 0; }},
      {"eq", [](V v, A a) { return equal(v, other(a)); }},
      {"equalto", [](V v, A a) { return equal(v, other(a)); }},
      {"even", [](V v, A) { return v.integer() % 2 == 0; }},
      {"false", [](V v, A) { return v.as<bool>() && !*v.as<bool>(); }},
      {"float", [](V v, A) { return v.as<double>() != nullptr; }},
      {"ge", [](V v, A a) { return compare(v, other(a)) >= 0; }},
      {"gt", [](V v, A a) { return compare(v, other(a)) > 0; }},
      {"in", [](V v, A a) { return contains(other(a), v); }},
      {"integer", [](V v, A) { return v.as<int64_t>() != nullptr; }},
      {"iterable", [](V v, A) { return v.text() || v.list() || v.dict() || v.is_undefined(); }},
      {"le", [](V v, A a) { return compare(v, other(a)) <= 0; }},
      {"lower", [](V v, A) { return v.text() && with_case(*v.text(), false) == *v.text(); }},
      {"lt", [](V v, A a) { return compare(v, other(a)) < 0; }},
      {"mapping", [](V v, A) { return v.dict() != nullptr; }},
      {"ne", [](V v, A a) { return !equal(v, other(a)); }},
      {"none", [](V v, A) { return v.is_none(); }},
      {"number", [](V v, A) { return v.is_number(); }},
      {"odd", [](V v, A) { return v.integer() % 2 != 0; }},
      {"sameas", [](V v, A a) { return v.type_name() == other(a).type_name() && equal(v, other(a)); }},
      {"sequence", [](V v, A) { return v.text() || v.list() || v.dict(); }},
      {"string", [](V v, A) { return v.text() != nullptr; }},
      {"true", [](V v, A) { return v.as<bool>() && *v.as<bool>(); }},
      {"undefined", [](V v, A) { return v.is_undefined(); }},
      {"upper", [](V v, A) { return v.text() && with_case(*v.text(), true) == *v.text(); }},
  };
  return all;
}

// --- methods ---

// Whether the text begins (or ends) with the argument or, of a list, with one of its items.
bool touches(const std::string& text, const Value& part, bool begin) {
  const auto holds = [&](const Value& one) {
    const std::string& piece = text_of(one, begin ? "startswith" : "endswith");
    return begin ? text.starts_with(piece) : text.ends_with(piece);
  };
  return part.list() ? std::ranges::any_of(*part.list(), holds) : holds(part);
}

using TextMethod = Value (*)(const std::string& text, const Arguments& arguments, const Budget& budget);
using S = const std::string&;
const std::map<std::string, TextMethod>& text_methods() {
  static const std::map<std::string, TextMethod> all = {
      {"capitalize", [](S s, A, B) -> Value { return capitalized(s, false); }},
      {"count",
       [](S s, A a, B) -> Value {
         const std::string& part = text_of(other(a), "count");
         if (part.empty()) fail("'count' needs a text to look for");
         int64_t count = 0;
         for (size_t at = s.find(part); at != s.npos; at = s.find(part, at + part.size())) ++count;
         return count;
       }},
      {"endswith", [](S s, A a, B) -> Value { return touches(s, other(a), false); }},
      {"find",
       [](S s, A a, B) -> Value {
         const size_t at = s.find(text_of(other(a), "find"));
         return at == s.npos ? Value(-1) : Value(elements(Value(s.substr(0, at))).size());
       }},
      {"isdigit", [](S s, A, B) -> Value { return !s.empty() && s.find_first_not_of("0123456789") == s.npos; }},
      {"join",
       [](S s, A a, B b) -> Value {
         Arguments between;
         between.positional.emplace_back(s);
         return join_filter(other(a), between, b);
       }},
      {"lower", [](S s, A, B) -> Value { return with_case(s, false); }},
      {"lstrip", [](S s, A a, B) -> Value { return strip_of(s, a, true, false); }},
      {"replace",
       [](S s, A a, B b) -> Value {
         return replaced(s, text_argument(a, 0, "old", ""), text_argument(a, 1, "new", ""),
                         integer_argument(a, 2, "count", -1), b);
       }},
      {"rstrip", [](S s, A a, B) -> Value { return strip_of(s, a, false, true); }},
      {"split", [](S s, A a, B) -> Value { return split(s, a); }},
      {"splitlines",
       [](S s, A, B) -> Value {
         List lines;
         for (size_t at = 0; at < s.size();) {
           const size_t end = std::min(s.find('\n', at), s.size());
           lines.emplace_back(s.substr(at, end - at));
           at = end + 1;
         }
         return lines;
       }},
      {"startswith", [](S s, A a, B) -> Value { return touches(s, other(a), true); }},
      {"strip", [](S s, A a, B) -> Value { return strip_of(s, a, true, true); }},
      {"title", [](S s, A, B) -> Value { return capitalized(s, true); }},
      {"upper", [](S s, A, B) -> Value { return with_case(s, true); }},
  };
  return all;
}

Value range(const Arguments& arguments) {
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
    if (static_cast<int64_t>(list.size()) == kLongest)
      fail("a range of more than " + std::to_string(kLongest) + " numbers");
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

Dict dict_of(const Arguments& arguments) {
  Dict dict;
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].dict()) fail("a dictionary is made of names, or of another dictionary");
    dict = *arguments.positional[0].dict();
  }
  for (const auto& [name, value] : arguments.named) dict.set(name, value);
  return dict;
}

}  // namespace

Filter find_filter(const std::string& name) {
  const auto found = filters().find(name);
  return found == filters().end() ? nullptr : found->second;
}

Test find_test(const std::string& name) {
  const auto found = tests().find(name);
  return found == tests().end() ? nullptr : found->second;
}

Value find_method(const Value& value, const std::string& name, const Budget& budget) {
  if (const std::string* text = value.text()) {
    const auto found = text_methods().find(name);
    if (found == text_methods().end()) return {};
    return Function([method = found->second, text = *text, &budget](A a) { return method(text, a, budget); });
  }
  if (!value.dict() || value.dict()->is_namespace) return {};
  // Holds the value: the dictionary outlives the function.
  if (name == "items") return Function([value](A) -> Value { return pairs_of(*value.dict()); });
  if (name == "keys") return Function([value](A) -> Value { return elements(value); });
  if (name == "values")
    return Function([value](A) -> Value {
      List values;
      for (const auto& [key, item] : value.dict()->items) values.push_back(item);
      return values;
    });
  if (name == "get")
    return Function([value](A a) -> Value {
      const Value* found = other(a).text() ? value.dict()->find(*other(a).text()) : nullptr;
      const Value* otherwise = a.find(1, "default");
      return found ? *found : otherwise ? *otherwise : Value(None{});
    });
  return {};
}

void add_functions(std::map<std::string, Value>& names) {
  names["range"] = Function(range);
  names["dict"] = Function([](A a) -> Value { return dict_of(a); });
  names["namespace"] = Function([](A a) -> Value {
    Dict dict = dict_of(a);
    dict.is_namespace = true;
    return dict;
  });
  names["raise_exception"] = Function([](A a) -> Value { fail("the template says: " + to_text(other(a))); });
  names["strftime_now"] = Function(time_text);
}

}  // namespace linnet::jinja
