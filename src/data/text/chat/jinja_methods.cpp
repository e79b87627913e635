// Methods of values, and functions, of the template language.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include "data/text/chat/jinja_program.h"
#include "data/text/unicode/utf8.h"

namespace linnet::jinja {
namespace {

// Whether the text begins (or ends) with the argument or, of a list, with one of its items.
bool touches(const std::string& text, const Value& part, bool begin, Budget& budget) {
  const auto holds = [&](const Value& one) {
    const std::string& piece = text_of(one, begin ? "startswith" : "endswith");
    budget.read(std::min(piece.size(), text.size()));
    return begin ? text.starts_with(piece) : text.ends_with(piece);
  };
  return part.list() ? std::ranges::any_of(*part.list(), holds) : holds(part);
}

Value split(const std::string& text, const Arguments& arguments, Budget& budget) {
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

// Other methods of texts are filters of the same name.
constexpr const char* kMethodsOfFilters[] = {"capitalize", "lower", "replace", "title", "upper"};

using TextMethod = Value (*)(const std::string& text, const Arguments& arguments, Budget& budget);
using S = const std::string&;
using A = const Arguments&;
using B = Budget&;
const std::map<std::string, TextMethod>& text_methods() {
  static const std::map<std::string, TextMethod> all = {
      {"count",
       [](S s, A a, B b) -> Value {
         const std::string& part = text_of(other(a), "count");
         if (part.empty()) fail("'count' needs a text to look for");
         int64_t count = 0;
         for (size_t at = 0; (at = find_text(s, part, at, b)) != s.npos; at += part.size()) ++count;
         return count;
       }},
      {"endswith", [](S s, A a, B b) -> Value { return touches(s, other(a), false, b); }},
      {"find",
       [](S s, A a, B b) -> Value {
         const size_t at = find_text(s, text_of(other(a), "find"), 0, b);
         return at == s.npos ? Value(-1) : Value(length_of(s.substr(0, at), b));
       }},
      {"isdigit",
       [](S s, A, B b) -> Value {
         b.read(s.size());
         return !s.empty() && s.find_first_not_of("0123456789") == s.npos;
       }},
      {"join", [](S s, A a, B b) { return find_filter("join")(other(a), {.positional = {s}, .named = {}}, b); }},
      {"lstrip", [](S s, A a, B b) -> Value { return strip_of(s, a, true, false, b); }},
      {"rstrip", [](S s, A a, B b) -> Value { return strip_of(s, a, false, true, b); }},
      {"split", split},
      {"splitlines",
       [](S s, A, B b) -> Value {
         List lines;
         for (size_t at = 0; at < s.size();) {
           const size_t end = std::min(s.find('\n', at), s.size());
           b.make_text(end - at + sizeof(Value));
           lines.emplace_back(s.substr(at, end - at));
           at = end + 1;
         }
         return lines;
       }},
      {"startswith", [](S s, A a, B b) -> Value { return touches(s, other(a), true, b); }},
      {"strip", [](S s, A a, B b) -> Value { return strip_of(s, a, true, true, b); }},
  };
  return all;
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
    if (static_cast<int64_t>(list.size()) == kLongest)
      fail("a range of more than " + std::to_string(kLongest) + " numbers");
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

}  // namespace

Value find_method(const Value& value, const std::string& name, Budget& budget) {
  budget.take(256);  // of a function and what it holds
  if (value.text()) {
    if (std::ranges::find(kMethodsOfFilters, name) != std::end(kMethodsOfFilters))
      return Function([filter = find_filter(name), value, &budget](A a) { return filter(value, a, budget); });
    const auto found = text_methods().find(name);
    if (found == text_methods().end()) return {};
    return Function([method = found->second, value, &budget](A a) { return method(*value.text(), a, budget); });
  }
  if (!value.dict() || value.dict()->is_namespace) return {};
  // Holds the value: the dictionary outlives the function.
  if (name == "items") return Function([value, &budget](A) -> Value { return pairs_of(*value.dict(), budget); });
  if (name == "keys") return Function([value, &budget](A) -> Value { return elements(value, budget); });
  if (name == "values")
    return Function([value, &budget](A) -> Value {
      List values;
      budget.make_list(value.dict()->items.size());
      for (const auto& [key, item] : value.dict()->items) values.push_back(item);
      return values;
    });
  if (name == "get")
    return Function([value, &budget](A a) -> Value {
      const Value* found = other(a).text() ? find_key(*value.dict(), *other(a).text(), budget) : nullptr;
      const Value* otherwise = a.find(1, "default");
      return found ? *found : otherwise ? *otherwise : Value(None{});
    });
  return {};
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
