// The parser of statements: text, {{ }} and {% %}.
#include "data/text/chat/jinja_expressions.h"

namespace linnet::jinja {
namespace {

class Parser : ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, int& line) : ExpressionParser(std::move(tokens), line) {}

  Program parse() {
    Program program{parse_block({})};
    if (peek().kind != Token::kEnd) fail("an unexpected " + describe());
    return program;
  }

 private:
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
        scope.budget.append(text.size());
        out += text;
        return Flow::kNext;
      };
    const int line = token.line;
    Statement statement;
    if (token.kind == Token::kVariableBegin) {
      Expression expression = parse_tuple();
      expect(Token::kVariableEnd);
      statement = [expression](Scope& scope, std::string& out) {
        append_text(expression(scope), out, scope.budget);
        return Flow::kNext;
      };
    } else if (token.kind == Token::kBlockBegin) {
      statement = parse_tag();
    } else {
      put_back();
      fail("an unexpected " + describe());
    }
    return [line, statement](Scope& scope, std::string& out) {
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
    const List parts = elements(value, scope.budget);
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
      List items = elements(all(scope), scope.budget);
      if (condition)
        std::erase_if(items, [&](const Value& item) {
          Scope inner{scope.budget, &scope, scope.root};
          assign(inner, targets, item);
          return !condition(inner).truth();
        });
      for (size_t i = 0; i < items.size(); ++i) {
        scope.budget.step(16);  // of the loop variable's members
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
        if (!std::exchange(kept.dict()->is_kept, true))
          scope.budget.make_list(1), scope.budget.namespaces.push_back(kept);
        scope.budget.make_list(2);
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

  struct Macro {
    struct Parameter {
      std::string name;
      Expression otherwise;  // null: undefined
    };
    std::string name;
    std::vector<Parameter> parameters;
    std::vector<Statement> body;

    // Scopes live on the stack: a macro sees the template's own names, which outlive it.
    Value call(Scope& root, const Arguments& arguments) const {
      if (arguments.positional.size() > parameters.size()) fail("too many arguments for '" + name + "'");
      if (--root.budget.calls < 0) fail("macros call each other too deeply");
      Scope inner{root.budget, &root, &root};
      for (size_t i = 0; i < parameters.size(); ++i) {
        const auto& [parameter, otherwise] = parameters[i];
        const Value* given = arguments.find(i, parameter);
        inner.names[parameter] = given ? *given : otherwise ? otherwise(inner) : undefined(parameter, root.budget);
      }
      std::string text;
      run(body, inner, text);
      ++root.budget.calls;
      return text;
    }
  };

  Statement parse_macro() {
    const auto macro = std::make_shared<Macro>();
    macro->name = expect_name();
    expect_operator("(");
    while (!take_operator(")")) {
      if (!macro->parameters.empty()) expect_operator(",");
      Macro::Parameter parameter{expect_name(), {}};
      if (take_operator("=")) parameter.otherwise = parse_expression();
      macro->parameters.push_back(std::move(parameter));
    }
    expect(Token::kBlockEnd);
    const int loops = std::exchange(loops_, 0);
    macro->body = parse_block({"endmacro"});
    loops_ = loops;
    end_block("endmacro");
    return [macro](Scope& scope, std::string&) {
      scope.budget.take(256);  // of the function
      scope.names[macro->name] =
          Function([root = scope.root, macro](const Arguments& arguments) { return macro->call(*root, arguments); });
      return Flow::kNext;
    };
  }

  int loops_ = 0;
};

}  // namespace

Program parse(const std::string& source, int& line) { return Parser(read_tokens(source, line), line).parse(); }

}  // namespace linnet::jinja
