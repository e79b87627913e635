#include <charconv>

#include "text/chat/jinja_program.h"

namespace linnet::jinja {
namespace {

constexpr int kDeepest = 100;  // nested expressions and blocks

// The arguments of a call as they are written.
struct CallArguments {
  std::vector<Expression> positional;
  std::vector<std::pair<std::string, Expression>> named;
  Arguments evaluate(Scope& scope) const {
    Arguments arguments;
    for (const Expression& expression : positional) arguments.positional.push_back(expression(scope));
    for (const auto& [name, expression] : named) arguments.named.emplace_back(name, expression(scope));
    return arguments;
  }
};

Expression constant(Value value) {
  return [value = std::move(value)](Scope&) { return value; };
}

class Parser {
 public:
  Parser(std::vector<Token> tokens, int& line) : tokens_(std::move(tokens)), line_(line) { line_ = 1; }

  Program parse() {
    Program program{parse_block({})};
    if (peek().kind != Token::kEnd) fail("an unexpected " + describe());
    return program;
  }

 private:
  // Tokens.
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
    if (peek().kind != kind) fail("an unexpected " + describe());
    take();
  }
  std::string describe() {
    line_ = peek().line;
    switch (peek().kind) {
      case Token::kText:
        return "text";
      case Token::kVariableBegin:
        return "'{{'";
      case Token::kVariableEnd:
        return "'}}'";
      case Token::kBlockBegin:
        return "'{%'";
      case Token::kBlockEnd:
        return "'%}'";
      case Token::kEnd:
        return "end of the template";
      default:
        return "'" + peek().text + "'";
    }
  }
  struct Nested {
    explicit Nested(int& nesting) : depth(nesting) {
      if (++depth > kDeepest) fail("it nests deeper than " + std::to_string(kDeepest) + " levels");
    }
    ~Nested() { --depth; }
    int& depth;
  };

  // Statements.
  bool at_block_of(std::initializer_list<const char*> names) const {
    if (peek().kind != Token::kBlockBegin) return false;
    for (const char* name : names)
      if (is_name(name, 1)) return true;
    return false;
  }
  std::vector<Statement> parse_block(std::initializer_list<const char*> ends) {
    const Nested nested(depth_);
    std::vector<Statement> statements;
    while (peek().kind != Token::kEnd && !at_block_of(ends)) statements.push_back(parse_statement());
    if (ends.size() > 0 && peek().kind == Token::kEnd)
      fail(std::string("{% ") + *(ends.end() - 1) + " %} is missing at the end");
    return statements;
  }
  void end_block(const char* name) {
    expect(Token::kBlockBegin);
    if (!take_name(name)) fail(std::string("{% ") + name + " %} is missing");
    expect(Token::kBlockEnd);
  }

  Statement parse_statement() {
    const Token token = take();
    if (token.kind == Token::kText)
      return [text = token.text](Scope& scope, std::string& out) {
        scope.budget.check_text(out.size() + text.size());
        out += text;
        return Flow::kNext;
      };
    const int line = token.line;
    Statement statement;
    if (token.kind == Token::kVariableBegin) {
      Expression expression = parse_tuple();
      expect(Token::kVariableEnd);
      statement = [expression](Scope& scope, std::string& out) {
        const std::string text = to_text(expression(scope));
        scope.budget.check_text(out.size() + text.size());
        out += text;
        return Flow::kNext;
      };
    } else if (token.kind == Token::kBlockBegin) {
      statement = parse_tag();
    } else {
      --at_;
      fail("an unexpected " + describe());
    }
    return [line, statement](Scope& scope, std::string& out) {
      scope.budget.step();
      scope.root->line = line;
      return statement(scope, out);
    };
  }

  Statement parse_tag() {
    const std::string name = expect_name();
    if (name == "if") return parse_if();
    if (name == "for") return parse_for();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "generation") {  // marks what a model has written, for training
      expect(Token::kBlockEnd);
      std::vector<Statement> body = parse_block({"endgeneration"});
      end_block("endgeneration");
      return [body](Scope& scope, std::string& out) { return run(body, scope, out); };
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail("{% " + name + " %} stands in no loop");
      expect(Token::kBlockEnd);
      return [flow = name == "break" ? Flow::kBreak : Flow::kContinue](Scope&, std::string&) { return flow; };
    }
    fail("{% " + name + " %} is not supported");
  }

  Statement parse_if() {
    struct Branch {
      Expression condition;
      std::vector<Statement> body;
    };
    std::vector<Branch> branches;
    for (bool more = true; more;) {
      Expression condition = parse_expression();
      expect(Token::kBlockEnd);
      branches.push_back({condition, parse_block({"elif", "else", "endif"})});
      expect(Token::kBlockBegin);
      more = take_name("elif");
    }
    if (take_name("else")) {
      expect(Token::kBlockEnd);
      branches.push_back({constant(true), parse_block({"endif"})});
      expect(Token::kBlockBegin);
    }
    if (!take_name("endif")) fail("{% endif %} is missing");
    expect(Token::kBlockEnd);
    return [branches](Scope& scope, std::string& out) {
      for (const Branch& branch : branches)
        if (branch.condition(scope).truth()) return run(branch.body, scope, out);
      return Flow::kNext;
    };
  }

  std::vector<std::string> parse_targets() {
    std::vector<std::string> targets;
    const bool parentheses = take_operator("(");
    do targets.push_back(expect_name());
    while (take_operator(","));
    if (parentheses) expect_operator(")");
    return targets;
  }

  static void assign(Scope& scope, const std::vector<std::string>& targets, const Value& value) {
    if (targets.size() == 1) {
      scope.names[targets[0]] = value;
      return;
    }
    const List parts = elements(value);
    if (parts.size() != targets.size())
      fail(std::to_string(parts.size()) + " values for " + std::to_string(targets.size()) + " names");
    for (size_t i = 0; i < parts.size(); ++i) scope.names[targets[i]] = parts[i];
  }

  static Value loop_variable(const List& items, size_t i, size_t depth) {
    const auto at = [&](size_t k) { return k < items.size() ? items[k] : Value(); };
    Dict loop;
    loop.items = {{"index", i + 1},
                  {"index0", i},
                  {"revindex", items.size() - i},
                  {"revindex0", items.size() - i - 1},
                  {"first", i == 0},
                  {"last", i + 1 == items.size()},
                  {"length", items.size()},
                  {"depth", depth + 1},
                  {"depth0", depth},
                  {"previtem", i > 0 ? items[i - 1] : Value()},
                  {"nextitem", at(i + 1)},
                  {"cycle", Function([i](const Arguments& arguments) {
                     if (arguments.positional.empty()) fail("loop.cycle needs values");
                     return arguments.positional[i % arguments.positional.size()];
                   })}};
    return loop;
  }

  Statement parse_for() {
    std::vector<std::string> targets = parse_targets();
    if (!take_name("in")) fail("'in' is missing before " + describe());
    Expression all = parse_or_tuple();
    Expression condition;
    if (take_name("if")) condition = parse_expression();
    if (is_name("recursive")) fail("a recursive loop is not supported");
    expect(Token::kBlockEnd);
    ++loops_;
    std::vector<Statement> body = parse_block({"else", "endfor"}), otherwise;
    --loops_;
    expect(Token::kBlockBegin);
    if (take_name("else")) {
      expect(Token::kBlockEnd);
      otherwise = parse_block({"endfor"});
      expect(Token::kBlockBegin);
    }
    if (!take_name("endfor")) fail("{% endfor %} is missing");
    expect(Token::kBlockEnd);
    return [targets, all, condition, body, otherwise](Scope& scope, std::string& out) {
      List items = elements(all(scope));
      if (condition)
        std::erase_if(items, [&](const Value& item) {
          Scope inner{scope.budget, &scope, scope.root};
          assign(inner, targets, item);
          scope.budget.step();
          return !condition(inner).truth();
        });
      for (size_t i = 0; i < items.size(); ++i) {
        scope.budget.step();
        Scope inner{scope.budget, &scope, scope.root};
        inner.names["loop"] = loop_variable(items, i, 0);
        assign(inner, targets, items[i]);
        if (run(body, inner, out) == Flow::kBreak) break;
      }
      return items.empty() ? run(otherwise, scope, out) : Flow::kNext;
    };
  }

  Statement parse_set() {
    if (peek().kind == Token::kName && is_operator(".", 1)) {
      const std::string name = take().text;
      take();
      const std::string key = expect_name();
      expect_operator("=");
      Expression value = parse_tuple();
      expect(Token::kBlockEnd);
      return [name, key, value](Scope& scope, std::string&) {
        const Value* found = scope.find(name);
        if (!found || !found->dict() || !found->dict()->is_namespace) fail("'" + name + "' is no namespace");
        const Value kept = *found;  // evaluating may replace it
        scope.budget.namespaces.emplace(kept.dict(), kept);
        kept.dict()->set(key, value(scope));
        return Flow::kNext;
      };
    }
    std::vector<std::string> targets = parse_targets();
    if (take_operator("=")) {
      Expression value = parse_tuple();
      expect(Token::kBlockEnd);
      return [targets, value](Scope& scope, std::string&) {
        assign(scope, targets, value(scope));
        return Flow::kNext;
      };
    }
    if (is_operator("|")) fail("a filtered {% set %} block is not supported");
    expect(Token::kBlockEnd);
    std::vector<Statement> body = parse_block({"endset"});
    end_block("endset");
    return [targets, body](Scope& scope, std::string&) {
      std::string text;
      Scope inner{scope.budget, &scope, scope.root};
      run(body, inner, text);
      assign(scope, targets, Value(text));
      return Flow::kNext;
    };
  }

  Statement parse_macro() {
    struct Parameter {
      std::string name;
      Expression otherwise;  // null: undefined
    };
    const std::string name = expect_name();
    std::vector<Parameter> parameters;
    expect_operator("(");
    while (!take_operator(")")) {
      if (!parameters.empty()) expect_operator(",");
      Parameter parameter{expect_name(), {}};
      if (take_operator("=")) parameter.otherwise = parse_expression();
      parameters.push_back(std::move(parameter));
    }
    expect(Token::kBlockEnd);
    const int loops = std::exchange(loops_, 0);
    std::vector<Statement> body = parse_block({"endmacro"});
    loops_ = loops;
    end_block("endmacro");
    return [name, parameters, body](Scope& scope, std::string&) {
      // Scopes live on the stack: a macro sees the template's own names, which outlive it.
      Scope* root = scope.root;
      scope.names[name] = Function([root, name, parameters, body](const Arguments& arguments) -> Value {
        if (arguments.positional.size() > parameters.size()) fail("too many arguments for '" + name + "'");
        if (--root->budget.calls < 0) fail("macros call each other too deeply");
        Scope inner{root->budget, root, root};
        for (size_t i = 0; i < parameters.size(); ++i) {
          const Value* given = arguments.find(i, parameters[i].name);
          inner.names[parameters[i].name] = given                     ? *given
                                            : parameters[i].otherwise ? parameters[i].otherwise(inner)
                                                                      : Value(Undefined{parameters[i].name});
        }
        std::string text;
        run(body, inner, text);
        ++root->budget.calls;
        return text;
      });
      return Flow::kNext;
    };
  }

  // Expressions, from the loosest to the tightest.
  Expression parse_tuple() {
    Expression first = parse_expression();
    if (!is_operator(",")) return first;
    std::vector<Expression> items{first};
    while (take_operator(",")) {
      if (peek().kind == Token::kBlockEnd || peek().kind == Token::kVariableEnd || is_operator(")")) break;
      items.push_back(parse_expression());
    }
    return list_of(std::move(items));
  }
  // What a loop goes over: "if" behind it is the loop's.
  Expression parse_or_tuple() { return parse_or(); }

  static Expression list_of(std::vector<Expression> items) {
    return [items = std::move(items)](Scope& scope) -> Value {
      List list;
      for (const Expression& item : items) list.push_back(item(scope));
      return list;
    };
  }

  Expression parse_expression() {
    const Nested nested(depth_);
    Expression value = parse_or();
    while (take_name("if")) {
      Expression condition = parse_or(), otherwise = constant(Value());
      if (take_name("else")) otherwise = parse_expression();
      value = [value, condition, otherwise](Scope& scope) {
        return condition(scope).truth() ? value(scope) : otherwise(scope);
      };
    }
    return value;
  }

  Expression parse_or() {
    Expression left = parse_and();
    while (take_name("or")) {
      Expression right = parse_and();
      left = [left, right](Scope& scope) {
        Value value = left(scope);
        return value.truth() ? value : right(scope);
      };
    }
    return left;
  }

  Expression parse_and() {
    Expression left = parse_not();
    while (take_name("and")) {
      Expression right = parse_not();
      left = [left, right](Scope& scope) {
        Value value = left(scope);
        return value.truth() ? right(scope) : value;
      };
    }
    return left;
  }

  Expression parse_not() {
    if (!take_name("not")) return parse_comparison();
    const Nested nested(depth_);
    Expression value = parse_not();
    return [value](Scope& scope) -> Value { return !value(scope).truth(); };
  }

  // The operator of a comparison that stands here, or "".
  std::string take_comparison() {
    for (const char* op : {"==", "!=", "<=", ">=", "<", ">"})
      if (take_operator(op)) return op;
    if (take_name("in")) return "in";
    if (is_name("not") && is_name("in", 1)) return take(), take(), "not in";
    return "";
  }

  static bool holds(const std::string& op, const Value& a, const Value& b) {
    if (op == "==") return equal(a, b);
    if (op == "!=") return !equal(a, b);
    if (op == "in") return contains(b, a);
    if (op == "not in") return !contains(b, a);
    const int order = compare(a, b);
    return op == "<" ? order < 0 : op == ">" ? order > 0 : op == "<=" ? order <= 0 : order >= 0;
  }

  Expression parse_comparison() {
    Expression first = parse_sum();
    std::vector<std::pair<std::string, Expression>> rest;
    for (std::string op = take_comparison(); !op.empty(); op = take_comparison()) rest.emplace_back(op, parse_sum());
    if (rest.empty()) return first;
    return [first, rest](Scope& scope) -> Value {
      Value left = first(scope);
      for (const auto& [op, expression] : rest) {
        Value right = expression(scope);
        if (!holds(op, left, right)) return false;
        left = std::move(right);
      }
      return true;
    };
  }

  Expression binary(Expression left, const std::string& op, Expression right) {
    return [left, op, right](Scope& scope) {
      scope.budget.step();
      const Value a = left(scope), b = right(scope);
      return op == "+" ? add(a, b, scope.budget) : arithmetic(op, a, b, scope.budget);
    };
  }

  Expression parse_sum() {
    Expression left = parse_concatenation();
    while (is_operator("+") || is_operator("-")) {
      const std::string op = take().text;
      left = binary(left, op, parse_concatenation());
    }
    return left;
  }

  Expression parse_concatenation() {
    Expression left = parse_product();
    while (take_operator("~")) {
      Expression right = parse_product();
      left = [left, right](Scope& scope) -> Value {
        std::string text = to_text(left(scope)) + to_text(right(scope));
        scope.budget.check_text(text.size());
        return text;
      };
    }
    return left;
  }

  Expression parse_product() {
    Expression left = parse_power();
    while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
      const std::string op = take().text;
      left = binary(left, op, parse_power());
    }
    return left;
  }

  Expression parse_power() {
    Expression left = parse_unary(true);
    while (take_operator("**")) left = binary(left, "**", parse_unary(true));
    return left;
  }

  Expression parse_unary(bool with_filters) {
    const Nested nested(depth_);
    Expression value;
    if (is_operator("-") || is_operator("+")) {
      const std::string op = take().text;
      value = binary(constant(0), op, parse_unary(false));
    } else {
      value = parse_primary();
    }
    value = parse_postfix(value);
    return with_filters ? parse_filters(value) : value;
  }

  Expression parse_primary() {
    const Token token = take();
    switch (token.kind) {
      case Token::kString: {
        std::string text = token.text;
        while (peek().kind == Token::kString) text += take().text;
        return constant(text);
      }
      case Token::kInteger:
        return constant(static_cast<int64_t>(std::stoll(token.text)));
      case Token::kFloat: {
        double number = 0;
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
        return constant(number);
      }
      case Token::kName:
        return parse_name(token.text);
      case Token::kOperator:
        if (token.text == "(") {
          if (take_operator(")")) return list_of({});
          Expression value = parse_tuple();
          expect_operator(")");
          return value;
        }
        if (token.text == "[") return parse_list();
        if (token.text == "{") return parse_dict();
        break;
      default:
        break;
    }
    --at_;
    fail("an unexpected " + describe());
  }

  Expression parse_name(const std::string& name) {
    if (name == "true" || name == "True") return constant(true);
    if (name == "false" || name == "False") return constant(false);
    if (name == "none" || name == "None") return constant(None{});
    return [name](Scope& scope) {
      scope.budget.step();
      const Value* value = scope.find(name);
      return value ? *value : Value(Undefined{name});
    };
  }

  Expression parse_list() {
    std::vector<Expression> items;
    while (!take_operator("]")) {
      if (!items.empty()) expect_operator(",");
      if (take_operator("]")) break;
      items.push_back(parse_expression());
    }
    return list_of(std::move(items));
  }

  Expression parse_dict() {
    std::vector<std::pair<Expression, Expression>> items;
    while (!take_operator("}")) {
      if (!items.empty()) expect_operator(",");
      if (take_operator("}")) break;
      Expression key = parse_expression();
      expect_operator(":");
      items.emplace_back(key, parse_expression());
    }
    return [items](Scope& scope) -> Value {
      Dict dict;
      for (const auto& [key, value] : items) {
        const Value name = key(scope);
        if (!name.text()) fail("a key of a dictionary is a " + name.type_name() + ", not a text");
        dict.set(*name.text(), value(scope));
      }
      return dict;
    };
  }

  Expression parse_postfix(Expression value) {
    for (;;) {
      if (take_operator(".")) {
        const std::string name = peek().kind == Token::kInteger ? take().text : expect_name();
        value = [value, name](Scope& scope) {
          const Value object = value(scope);
          const Value method = find_method(object, name, scope.budget);
          return method.is_undefined() ? get_item(object, name) : method;
        };
      } else if (take_operator("[")) {
        value = parse_subscript(value);
      } else if (take_operator("(")) {
        value = parse_call(value);
      } else {
        return value;
      }
    }
  }

  Expression parse_subscript(Expression value) {
    Expression parts[3];
    bool slice = false;
    for (int part = 0; part < 3; ++part) {
      if (!is_operator(":") && !is_operator("]")) parts[part] = parse_expression();
      if (!take_operator(":")) break;
      slice = true;
    }
    expect_operator("]");
    if (!slice) {
      if (!parts[0]) fail("an index is missing");
      return [value, key = parts[0]](Scope& scope) {
        const Value object = value(scope), index = key(scope);
        const Value item = get_item(object, index);
        return item.is_undefined() && index.text() ? find_method_or(item, object, *index.text(), scope) : item;
      };
    }
    return [value, begin = parts[0], end = parts[1], step = parts[2]](Scope& scope) {
      const auto bound = [&](const Expression& part) { return part ? part(scope) : Value(None{}); };
      return slice_of(value(scope), bound(begin), bound(end), bound(step));
    };
  }

  static Value find_method_or(const Value& otherwise, const Value& object, const std::string& name, Scope& scope) {
    const Value method = find_method(object, name, scope.budget);
    return method.is_undefined() ? otherwise : method;
  }

  static Value slice_of(const Value& object, const Value& begin, const Value& end, const Value& by) {
    if (!object.text() && !object.list()) fail("a " + object.type_name() + " cannot be sliced");
    for (const Value* bound : {&begin, &end, &by})
      if (!bound->is_none() && !bound->is_integer()) fail("a slice needs whole numbers");
    const List items = elements(object);
    const auto size = static_cast<int64_t>(items.size()), step = by.is_none() ? 1 : by.integer();
    if (step == 0) fail("a slice's step is 0");
    const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
    const auto clamp = [&](const Value& bound, int64_t otherwise) {
      if (bound.is_none()) return otherwise;
      const int64_t place = bound.integer() < 0 ? bound.integer() + size : bound.integer();
      return std::min(std::max(place, least), most);
    };
    const int64_t first = clamp(begin, step > 0 ? 0 : size - 1), last = clamp(end, step > 0 ? size : -1);
    List chosen;
    for (int64_t i = first; step > 0 ? i < last : i > last; i += step) {
      chosen.push_back(items[static_cast<size_t>(i)]);
      if (step > size || step < -size) break;
    }
    if (!object.text()) return chosen;
    std::string text;
    for (const Value& character : chosen) text += *character.text();
    return text;
  }

  CallArguments parse_arguments() {
    CallArguments arguments;
    while (!take_operator(")")) {
      if (!arguments.positional.empty() || !arguments.named.empty()) expect_operator(",");
      if (take_operator(")")) break;
      if (is_operator("*") || is_operator("**")) fail("arguments from a list or dictionary are not supported");
      if (peek().kind == Token::kName && is_operator("=", 1)) {
        const std::string name = take().text;
        take();
        arguments.named.emplace_back(name, parse_expression());
      } else {
        if (!arguments.named.empty()) fail("an argument without a name follows one with a name");
        arguments.positional.push_back(parse_expression());
      }
    }
    return arguments;
  }

  Expression parse_call(Expression callee) {
    CallArguments arguments = parse_arguments();
    return [callee, arguments](Scope& scope) {
      scope.budget.step();
      const Value called = callee(scope);
      if (const Undefined* missing = called.as<Undefined>()) fail("'" + missing->name + "' is not defined");
      if (!called.function()) fail("a " + called.type_name() + " cannot be called");
      return (*called.function())(arguments.evaluate(scope));
    };
  }

  Expression parse_filters(Expression value) {
    for (;;) {
      if (take_operator("|")) {
        const std::string name = expect_name();
        const Filter filter = find_filter(name);
        if (!filter) fail("the filter '" + name + "' is not supported");
        CallArguments arguments;
        if (take_operator("(")) arguments = parse_arguments();
        value = [value, filter, arguments](Scope& scope) {
          scope.budget.step();
          return filter(value(scope), arguments.evaluate(scope), scope.budget);
        };
      } else if (take_name("is")) {
        value = parse_test(value);
      } else if (take_operator("(")) {
        value = parse_call(value);
      } else {
        return value;
      }
    }
  }

  Expression parse_test(Expression value) {
    const bool negated = take_name("not");
    const std::string name = expect_name();
    const Test test = find_test(name);
    if (!test) fail("the test '" + name + "' is not supported");
    CallArguments arguments;
    const Token& next = peek();
    const bool keyword = is_name("and") || is_name("or") || is_name("else") || is_name("if") || is_name("is") ||
                         is_name("in") || is_name("not");
    if (take_operator("(")) {
      arguments = parse_arguments();
    } else if ((next.kind == Token::kName && !keyword) || next.kind == Token::kString || next.kind == Token::kInteger ||
               next.kind == Token::kFloat || is_operator("[") || is_operator("{")) {
      arguments.positional.push_back(parse_postfix(parse_primary()));
    }
    return [value, negated, test, arguments](Scope& scope) -> Value {
      return test(value(scope), arguments.evaluate(scope)) != negated;
    };
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int& line_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Program parse(const std::string& source, int& line) { return Parser(read_tokens(source, line), line).parse(); }

}  // namespace linnet::jinja
