// Values of the template language of chat templates (jinja_template.h): what Python would have in their place.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace linnet::jinja {

class Value;
using List = std::vector<Value>;

// Keys are strings, in the order in which they were set.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  bool is_namespace = false;  // `{% set name.key = ... %}` is allowed
  const Value* find(const std::string& key) const;
  void set(const std::string& key, Value value);
};

struct Undefined {
  std::string name;  // for messages
};
struct None {};

// The arguments of a call, a filter or a test.
struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
  // The argument at `position` or of that name; null when it is not given.
  const Value* find(size_t position, const std::string& name) const;
};
using Function = std::function<Value(const Arguments&)>;

// Tuples are lists. Lists and dictionaries are shared, as in Python. Templates cannot change them, except namespaces.
class Value {
 public:
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::string, std::shared_ptr<List>,
                            std::shared_ptr<Dict>, std::shared_ptr<Function>>;
  Value() : data_(Undefined{}) {}
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, Value> && std::is_constructible_v<Data, T>) Value(T&& data)
      : data_(std::forward<T>(data)) {}  // implicit: values are written as literals
  Value(int number) : data_(static_cast<int64_t>(number)) {}
  Value(size_t number) : data_(static_cast<int64_t>(number)) {}
  Value(const char* text) : data_(std::string(text)) {}
  Value(List list) : data_(std::make_shared<List>(std::move(list))) {}
  Value(Dict dict) : data_(std::make_shared<Dict>(std::move(dict))) {}
  Value(Function function) : data_(std::make_shared<Function>(std::move(function))) {}

  template <class T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  const std::string* text() const { return as<std::string>(); }
  const List* list() const;
  Dict* dict() const;
  const Function* function() const;
  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_) || std::holds_alternative<bool>(data_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(data_); }
  int64_t integer() const;  // of an integer or a bool; else 0
  double number() const;    // of any number; else 0

  bool truth() const;
  std::string type_name() const;  // Python's: "str", "list", ...

 private:
  Data data_;
};

bool equal(const Value& a, const Value& b);
// -1, 0 or 1 for two numbers, two strings or two lists; error for anything else.
int compare(const Value& a, const Value& b);
std::string to_text(const Value& value);                                           // str()
std::string to_repr(const Value& value);                                           // repr()
std::string to_json(const Value& value, int indent = -1, bool sort_keys = false);  // json.dumps(ensure_ascii=False)
// The elements of a list, the characters of a text, the keys of a dictionary. Nothing for an undefined value; error for
// anything else.
List elements(const Value& value);

// Ends the rendering with an error of one line; the template adds its name and the line.
struct TemplateError {
  std::string what;
};
[[noreturn]] void fail(const std::string& what);

}  // namespace linnet::jinja
