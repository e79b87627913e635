// The part of Jinja that chat templates use, with transformers' settings: trim_blocks, lstrip_blocks, break and
// continue. Statements: for (with else and if), break, continue, if, set (also of a block or a namespace's member),
// macro, raw, generation. Expressions: all of Python's that Jinja has. Anything else is an error that names it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace linnet::jinja {
class Value;
using List = std::vector<Value>;

// String keys, in the order they were set.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  bool is_namespace = false;  // `{% set name.key = ... %}` is allowed
  bool is_kept = false;       // it is one of Budget::namespaces
  int depth = 1;              // of the values it was made of, with itself
  const Value* find(const std::string& key) const;
  void set(const std::string& key, Value value);
};

// The value of an unknown name or key; the name is for messages.
struct Undefined {
  std::shared_ptr<const std::string> name;
};
struct None {};

struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
  // The argument at `position` or of that name; null if it is missing.
  const Value* find(size_t position, const std::string& name) const;
};
using Function = std::function<Value(const Arguments&)>;

// Tuples are lists. Texts, lists and dictionaries are shared, so copies are cheap. Only namespaces can change.
class Value {
 public:
  struct Sequence {
    List items;
    int depth;  // of its items, with itself
  };
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
      std::shared_ptr<const Sequence>, std::shared_ptr<Dict>, std::shared_ptr<const Function>>;
  Value() : data_(Undefined{}) {}
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, Value> && std::is_constructible_v<Data, T>) Value(T&& data)
      : data_(std::forward<T>(data)) {}  // implicit: values are written as literals
  Value(int number) : data_(static_cast<int64_t>(number)) {}
  Value(size_t number) : data_(static_cast<int64_t>(number)) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(const char* text) : Value(std::string(text)) {}
  // Error for values that nest too deeply, since functions on them are recursive.
  Value(List list);
  Value(Dict dict);
  Value(Function function) : data_(std::make_shared<const Function>(std::move(function))) {}

  template <class T> const T* as() const { return std::get_if<T>(&data_); }
  const std::string* text() const { return shared<std::string>(); }
  const List* list() const;
  Dict* dict() const;
  const Function* function() const { return shared<Function>(); }
  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_) || std::holds_alternative<bool>(data_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(data_); }
  int64_t integer() const;  // of an integer or a bool; else 0
  double number() const;    // of any number; else 0

  bool truth() const;
  std::string type_name() const;  // Python's: "str", "list", ...
  int depth() const;              // 0 for what holds no values

 private:
  template <class T> const T* shared() const {
    const auto* found = as<std::shared_ptr<const T>>();
    return found ? found->get() : nullptr;
  }

  Data data_;
};

// Ends the rendering with an error of one line; the template adds its name and the line.
struct TemplateError {
  std::string what;
};
[[noreturn]] void fail(const std::string& what);

// The remaining cost of a rendering. Code charges text or elements before it reads or makes them, so that no template
// can take unbounded time or memory.
struct Budget {
  static constexpr int64_t kSteps = 5'000'000, kBytes = int64_t{128} << 20;
  static constexpr size_t kBytesOfStep = 32;  // which are read in about the time of a step

  int64_t steps = kSteps;  // expressions, statements, elements, and kBytesOfStep of text
  int64_t bytes = kBytes;  // made in all, also those that were freed since
  int depth = 2000;        // of closures that call each other
  int calls = 100;         // nested macro calls
  // Namespaces whose members were set. They may contain themselves, so they are emptied after the template has run.
  std::vector<Value> namespaces = {};

  void step(size_t count = 1) {
    steps -= static_cast<int64_t>(std::min(count, size_t{kSteps} + 1));
    if (steps < 0) fail("it takes too many steps");
  }
  void read(size_t size) { step(size / kBytesOfStep); }
  void take(size_t size) {
    bytes -= static_cast<int64_t>(std::min(size, size_t{kBytes} + 1));
    if (bytes < 0) fail("its text grows beyond " + std::to_string(kBytes >> 20) + " MB");
  }
  // Charge for appending to a text, and for a new text or list with its overhead.
  void append(size_t size) { take(size), read(size); }
  void make_text(size_t size) { take(size + 64), step(1 + size / kBytesOfStep); }
  void make_list(size_t size) { take(size * sizeof(Value) + 128), step(1 + size); }
};

Value undefined(std::string_view name, Budget& budget);  // long names are cut
bool equal(const Value& a, const Value& b, Budget& budget, int depth = 0);
// -1, 0 or 1 for two numbers or two strings; otherwise an error.
int compare(const Value& a, const Value& b, Budget& budget);
std::string to_text(const Value& value, Budget& budget);  // str()
// json.dumps(ensure_ascii=False)
std::string to_json(const Value& value, Budget& budget, int indent = -1, bool sort_keys = false);
// The elements of a list, characters of a text or keys of a dictionary; none of an undefined value; otherwise an error.
List elements(const Value& value, Budget& budget);

struct Program;  // what the parser makes of a source

struct Cost {
  int64_t steps = 0, bytes = 0;
};

class Template {
 public:
  // User error with the line of a mistake; `name` begins the message.
  Template(const std::string& source, std::string name);

  // User error for failures, raise_exception, and more steps or memory than a conversation needs. Always sets `cost`.
  std::string render(const Dict& variables, Cost* cost = nullptr) const;

 private:
  std::string name_;
  std::shared_ptr<const Program> program_;
};
}  // namespace linnet::jinja
