// A template as closures, which the parser makes and rendering calls. Only for the .cpp files of the template language.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>
#include "data/text/chat/jinja_template.h"

namespace linnet::jinja {
// The names of one block; `outer` has those of the block around it.
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

// An expression or statement as the parser makes it; copies share it. Each call is a step, and nested calls are
// counted, as they use the thread's stack.
template <class Result, class... Out> class Closure {
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

using Statements = std::vector<Statement>;

inline Expression constant(Value value) {
  return [value = std::move(value)](Scope&) { return value; };
}

struct Token {
  enum Kind { kText, kExprBegin, kExprEnd, kBlockBegin, kBlockEnd, kName, kInteger, kFloat, kString, kOperator, kEnd };
  Kind kind = kEnd;
  std::string text;
  int line = 1;
};
// Text, trimmed by trim_blocks, lstrip_blocks and "-", and the tokens between marks. `line`: of a mistake.
std::vector<Token> read_tokens(const std::string& source, int& line);

// The tokens of a template for a parser.
class TokenStream {
 public:
  // `line` follows the tokens, for messages.
  TokenStream(std::vector<Token> tokens, int& line) : line_(line), tokens_(std::move(tokens)) { line_ = 1; }

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token take() {
    line_ = peek().line;
    return tokens_[std::min(at_++, tokens_.size() - 1)];
  }
  bool is_operator(const char* text, size_t ahead = 0) const {
    return peek(ahead).kind == Token::kOperator && peek(ahead).text == text;
  }
  bool is_name(const char* text, size_t ahead = 0) const {
    return peek(ahead).kind == Token::kName && peek(ahead).text == text;
  }
  bool take_operator(const char* text) { return is_operator(text) && (take(), true); }
  bool take_name(const char* text) { return is_name(text) && (take(), true); }
  void expect_operator(const char* text) {
    if (!take_operator(text)) fail(std::string("'") + text + "' is missing before " + describe());
  }
  std::string expect_name() {
    if (peek().kind != Token::kName) fail("a name is missing before " + describe());
    return take().text;
  }
  void expect(Token::Kind kind) {
    if (peek().kind != kind) fail_at(0);
    take();
  }
  std::string describe() {
    line_ = peek().line;
    switch (peek().kind) {
      case Token::kText: return "text";
      case Token::kExprBegin: return "'{{'";
      case Token::kExprEnd: return "'}}'";
      case Token::kBlockBegin: return "'{%'";
      case Token::kBlockEnd: return "'%}'";
      case Token::kEnd: return "end of the template";
      default: return "'" + peek().text + "'";
    }
  }
  // Counts nested expressions and blocks while it lives; error beyond kDeepest.
  struct Nested {
    explicit Nested(TokenStream& tokens) : depth(tokens.depth_) {
      if (++depth > kDeepest) fail("it nests deeper than " + std::to_string(kDeepest) + " levels");
    }
    ~Nested() { --depth; }
    int& depth;
  };
  [[noreturn]] void fail_at(size_t back) {
    at_ -= back;
    fail("an unexpected " + describe());
  }

 private:
  static constexpr int kDeepest = 100;

  int& line_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

Expression parse_expression(TokenStream& tokens);
Expression parse_tuple(TokenStream& tokens);       // an expression, or a list of several separated by commas
Expression parse_loop_range(TokenStream& tokens);  // leaves a following "if" to the loop

// Null if there is none of that name.
using Filter = Value (*)(const Value& value, const Arguments& arguments, Budget& budget);
Filter find_filter(std::string_view name);
using Test = bool (*)(const Value& value, const Arguments& arguments, Budget& budget);
Test find_test(std::string_view name);
// value.name, of texts and dictionaries; undefined if there is none.
Value find_method(const Value& value, std::string_view name, Budget& budget);
// Adds range, namespace, dict, raise_exception, strftime_now.
void add_functions(std::map<std::string, Value>& names, Budget& budget);

Value get_item(const Value& value, const Value& key, Budget& budget);
Value slice_of(const Value& object, const Value& begin, const Value& end, const Value& step, Budget& budget);
// op: "+", "-", "~", "*", "/", "//", "%", "**"
Value operate(std::string_view op, const Value& a, const Value& b, Budget& budget);
// op: "==", "!=", "<", ">", "<=", ">=", "in", "not in"
bool holds(std::string_view op, const Value& a, const Value& b, Budget& budget);
void append_text(const Value& value, std::string& out, Budget& budget);  // to_text() without a copy between

inline constexpr const char* kSpace = " \t\n\r\f\v";

// Throws an error that names an undefined value; `rest` ends it.
void check_defined(const Value& value, const std::string& rest = "");
const std::string& text_of(const Value& value, const char* what);
std::string text_argument(const Arguments& arguments, size_t location, const char* name, const std::string& otherwise);
int64_t integer_argument(const Arguments& arguments, size_t location, const char* name, int64_t otherwise);
bool flag_argument(const Arguments& arguments, size_t location, const char* name);
// The first offset of `part` in `text` from `from` on, in linear time, or npos.
size_t find_text(const std::string& text, const std::string& part, size_t from, Budget& budget);
const Value* find_key(const Dict& dict, const std::string& key, Budget& budget);
size_t length_of(const Value& value, Budget& budget);
List pairs_of(const Dict& dict, Budget& budget);
Value strip_of(const std::string& text, const Arguments& arguments, bool left, bool right, Budget& budget);
const Value& other(const Arguments& arguments);
}  // namespace linnet::jinja
