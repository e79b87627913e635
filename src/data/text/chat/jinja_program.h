// A template as closures: the parser makes them, rendering calls them. Only for the .cpp files of the template
// language.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/text/chat/jinja_value.h"

namespace linnet::jinja {

// What a rendering may cost, so that no template runs or grows for ever.
struct Budget {
  int64_t steps = 5'000'000;       // expressions and statements
  size_t text = size_t{64} << 20;  // bytes, of one value or of the output
  int calls = 100;                 // nested macro calls
  // Namespaces whose members were set: one may hold itself, so they are emptied when the template has run.
  std::map<const Dict*, Value> namespaces = {};
  void step() {
    if (--steps < 0) fail("it takes too many steps");
  }
  void check_text(size_t size) const {
    if (size > text) fail("its text grows beyond " + std::to_string(text >> 20) + " MB");
  }
};

// Names that are seen in one block; those of the blocks around it are in `outer`.
struct Scope {
  Budget& budget;
  Scope* outer = nullptr;
  Scope* root = nullptr;  // the template's own
  std::map<std::string, Value> names = {};
  int line = 0;  // of the statement that runs, for messages; kept in the root

  const Value* find(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->outer)
      if (const auto found = scope->names.find(name); found != scope->names.end()) return &found->second;
    return nullptr;
  }
};

enum class Flow { kNext, kBreak, kContinue };
using Expression = std::function<Value(Scope&)>;
using Statement = std::function<Flow(Scope&, std::string& out)>;

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
using Filter = Value (*)(const Value& value, const Arguments& arguments, const Budget& budget);
Filter find_filter(const std::string& name);
using Test = bool (*)(const Value& value, const Arguments& arguments);
Test find_test(const std::string& name);
// value.name: of texts and dictionaries; undefined when there is none.
Value find_method(const Value& value, const std::string& name, const Budget& budget);
// range, namespace, dict, raise_exception, strftime_now
void add_functions(std::map<std::string, Value>& names);

Value get_item(const Value& value, const Value& key);
Value add(const Value& a, const Value& b, const Budget& budget);
// op: "-", "*", "/", "//", "%", "**"
Value arithmetic(const std::string& op, const Value& a, const Value& b, const Budget& budget);
bool contains(const Value& whole, const Value& part);

}  // namespace linnet::jinja
