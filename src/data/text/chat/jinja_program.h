// A template as closures: the parser makes them, rendering calls them. Only for the .cpp files of the template
// language.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>
#include "data/text/chat/jinja_value.h"

namespace linnet::jinja {

// Names that are seen in one block; those of the blocks around it are in `outer`.
struct Scope {
  Budget& budget;
  Scope* outer = nullptr;
  Scope* root = nullptr;  // the template's own
  std::map<std::string, Value> names = {};
  int line = 0;  // of the statement that runs, for messages; kept in the root

  const Value* find(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->outer, budget.step())
      if (const auto found = scope->names.find(name); found != scope->names.end()) return &found->second;
    return nullptr;
  }
};

enum class Flow { kNext, kBreak, kContinue };

// What the parser makes of an expression or a statement; copies share it. Each call is a step, and calls within calls
// are counted, as they take the thread's stack.
template <class Result, class... Out>
class Closure {
 public:
  Closure() = default;
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, Closure>) Closure(Function&& function)
      : function_(std::make_shared<const std::function<Result(Scope&, Out...)>>(std::forward<Function>(function))) {}
  explicit operator bool() const { return function_ != nullptr; }
  Result operator()(Scope& scope, Out... out) const {
    const struct Call {
      explicit Call(Budget& budget) : depth(budget.depth) {
        budget.step();
        if (--depth < 0) ++depth, fail("it calls itself too deeply");
      }
      ~Call() { ++depth; }
      int& depth;
    } call(scope.budget);
    return (*function_)(scope, out...);
  }

 private:
  std::shared_ptr<const std::function<Result(Scope&, Out...)>> function_;
};
using Expression = Closure<Value>;
using Statement = Closure<Flow, std::string&>;

struct Program {
  std::vector<Statement> statements;
};

Flow run(const std::vector<Statement>& statements, Scope& scope, std::string& out);

struct Token {
  enum Kind {
    kText,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kInteger,
    kFloat,
    kString,
    kOperator,
    kEnd
  };
  Kind kind = kEnd;
  std::string text;
  int line = 1;
};
// Text with the white space of trim_blocks, lstrip_blocks and "-" taken away, and the tokens between the marks.
std::vector<Token> read_tokens(const std::string& source, int& line);

// `line` is that of the mistake when it throws.
Program parse(const std::string& source, int& line);

// filters, tests and methods: null when there is none of that name.
using Filter = Value (*)(const Value& value, const Arguments& arguments, Budget& budget);
Filter find_filter(const std::string& name);
using Test = bool (*)(const Value& value, const Arguments& arguments, Budget& budget);
Test find_test(const std::string& name);
// value.name: of texts and dictionaries; undefined when there is none.
Value find_method(const Value& value, const std::string& name, Budget& budget);
// range, namespace, dict, raise_exception, strftime_now
void add_functions(std::map<std::string, Value>& names, Budget& budget);

Value get_item(const Value& value, const Value& key, Budget& budget);
Value add(const Value& a, const Value& b, Budget& budget);
// op: "-", "*", "/", "//", "%", "**"
Value arithmetic(const std::string& op, const Value& a, const Value& b, Budget& budget);
bool contains(const Value& whole, const Value& part, Budget& budget);
void append_text(const Value& value, std::string& out, Budget& budget);  // to_text() without a copy between

}  // namespace linnet::jinja
