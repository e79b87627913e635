// The parser of statements (text, {{ }} and {% %}), and templates made of them.
#include "base/fail.h"
#include "data/text/chat/jinja_program.h"

namespace linnet::jinja {
struct Program {
  Statements statements;
};

namespace {
Flow run(const Statements& statements, Scope& scope, std::string& out) {
  for (const Statement& statement : statements)
    if (const Flow flow = statement(scope, out); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

void assign(Scope& scope, const std::vector<std::string>& targets, const Value& value) {
  if (targets.size() == 1) {
    scope.names[targets[0]] = value;
    return;
  }
  const List parts = elements(value, scope.budget);
  if (parts.size() != targets.size())
    fail(std::to_string(parts.size()) + " values for " + std::to_string(targets.size()) + " names");
  for (size_t i = 0; i < parts.size(); ++i) scope.names[targets[i]] = parts[i];
}

Value loop_variable(const List& items, size_t i) {
  Dict loop;
  loop.items = {{"index", i + 1}, {"index0", i}, {"revindex", items.size() - i}, {"revindex0", items.size() - i - 1},
      {"first", i == 0}, {"last", i + 1 == items.size()}, {"length", items.size()}, {"depth", 1}, {"depth0", 0},
      {"previtem", i > 0 ? items[i - 1] : Value()}, {"nextitem", i + 1 < items.size() ? items[i + 1] : Value()},
      {"cycle", Function([i](const Arguments& arguments) {
         if (arguments.positional.empty()) fail("loop.cycle needs values");
         return arguments.positional[i % arguments.positional.size()];
       })}};
  return loop;
}

struct Macro {
  struct Parameter {
    std::string name;
    Expression otherwise;  // null: undefined
  };
  std::string name;
  std::vector<Parameter> parameters;
  Statements body;

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

class Parser : TokenStream {
 public:
  using TokenStream::TokenStream;

  Statements parse() {
    Statements statements = parse_block({});
    expect(Token::kEnd);
    return statements;
  }

 private:
  bool at_block_of(std::initializer_list<const char*> names) const {
    return peek().kind == Token::kBlockBegin &&
           std::ranges::any_of(names, [&](const char* name) { return is_name(name, 1); });
  }
  Statements parse_block(std::initializer_list<const char*> ends) {
    const Nested nested(*this);
    Statements statements;
    while (peek().kind != Token::kEnd && !at_block_of(ends)) statements.push_back(parse_statement());
    if (ends.size() > 0 && peek().kind == Token::kEnd)
      fail(std::string("{% ") + *(ends.end() - 1) + " %} is missing at the end");
    return statements;
  }
  // Takes the name and end of a tag whose begin was taken.
  void finish_end_tag(const char* name) {
    if (!take_name(name)) fail(std::string("{% ") + name + " %} is missing");
    expect(Token::kBlockEnd);
  }
  // Takes the rest of a tag, and the body up to and including the tag `end`.
  Statements parse_body(const char* end) {
    expect(Token::kBlockEnd);
    Statements body = parse_block({end});
    expect(Token::kBlockBegin);
    finish_end_tag(end);
    return body;
  }

  Statement parse_statement() {
    const Token token = take();
    if (token.kind == Token::kText)
      return [text = token.text](Scope& scope, std::string& out) {
        scope.budget.append(text.size());
        out += text;
        return Flow::kNext;
      };
    Statement statement;
    if (token.kind == Token::kExprBegin) {
      statement = [expression = parse_tuple(*this)](Scope& scope, std::string& out) {
        append_text(expression(scope), out, scope.budget);
        return Flow::kNext;
      };
      expect(Token::kExprEnd);
    } else if (token.kind == Token::kBlockBegin) {
      statement = parse_tag();
    } else {
      fail_at(1);
    }
    return [line = token.line, statement](Scope& scope, std::string& out) {
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
    if (name == "generation")  // marks what a model has written, for training
      return [body = parse_body("endgeneration")](Scope& scope, std::string& out) { return run(body, scope, out); };
    if (name != "break" && name != "continue") fail("{% " + name + " %} is not supported");
    if (loops_ == 0) fail("{% " + name + " %} stands in no loop");
    expect(Token::kBlockEnd);
    return [flow = name == "break" ? Flow::kBreak : Flow::kContinue](Scope&, std::string&) { return flow; };
  }

  // Takes "else" and its body, and the end of the tag `end`, whose begin was taken.
  Statements parse_otherwise(const char* end) {
    if (take_name("else")) return parse_body(end);
    finish_end_tag(end);
    return {};
  }

  Statement parse_if() {
    struct Branch {
      Expression condition;
      Statements body;
    };
    std::vector<Branch> branches;
    do {
      Expression condition = parse_expression(*this);
      expect(Token::kBlockEnd);
      branches.push_back({condition, parse_block({"elif", "else", "endif"})});
      expect(Token::kBlockBegin);
    } while (take_name("elif"));
    return [branches, otherwise = parse_otherwise("endif")](Scope& scope, std::string& out) {
      for (const Branch& branch : branches)
        if (branch.condition(scope).truth()) return run(branch.body, scope, out);
      return run(otherwise, scope, out);
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

  Statement parse_for() {
    std::vector<std::string> targets = parse_targets();
    if (!take_name("in")) fail("'in' is missing before " + describe());
    Expression all = parse_loop_range(*this);
    Expression condition;
    if (take_name("if")) condition = parse_expression(*this);
    if (is_name("recursive")) fail("a recursive loop is not supported");
    expect(Token::kBlockEnd);
    ++loops_;
    Statements body = parse_block({"else", "endfor"});
    --loops_;
    expect(Token::kBlockBegin);
    return [targets, all, condition, body, otherwise = parse_otherwise("endfor")](Scope& scope, std::string& out) {
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
        inner.names["loop"] = loop_variable(items, i);
        assign(inner, targets, items[i]);
        if (run(body, inner, out) == Flow::kBreak) break;
      }
      return items.empty() ? run(otherwise, scope, out) : Flow::kNext;
    };
  }

  Statement parse_member_set() {  // {% set name.key = value %}
    const std::string name = take().text;
    take();
    const std::string key = expect_name();
    expect_operator("=");
    Expression value = parse_tuple(*this);
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

  Statement parse_set() {
    if (peek().kind == Token::kName && is_operator(".", 1)) return parse_member_set();
    std::vector<std::string> targets = parse_targets();
    if (take_operator("=")) {
      Expression value = parse_tuple(*this);
      expect(Token::kBlockEnd);
      return [targets, value](Scope& scope, std::string&) {
        assign(scope, targets, value(scope));
        return Flow::kNext;
      };
    }
    if (is_operator("|")) fail("a filtered {% set %} block is not supported");
    return [targets, body = parse_body("endset")](Scope& scope, std::string&) {
      std::string text;
      Scope inner{scope.budget, &scope, scope.root};
      run(body, inner, text);
      assign(scope, targets, Value(text));
      return Flow::kNext;
    };
  }

  Statement parse_macro() {
    const auto macro = std::make_shared<Macro>();
    macro->name = expect_name();
    expect_operator("(");
    while (!take_operator(")")) {
      if (!macro->parameters.empty()) expect_operator(",");
      Macro::Parameter parameter{expect_name(), {}};
      if (take_operator("=")) parameter.otherwise = parse_expression(*this);
      macro->parameters.push_back(std::move(parameter));
    }
    const int loops = std::exchange(loops_, 0);
    macro->body = parse_body("endmacro");
    loops_ = loops;
    return [macro](Scope& scope, std::string&) {
      scope.budget.take(256);  // of the function
      scope.names[macro->name] =
          Function([root = scope.root, macro](const Arguments& arguments) { return macro->call(*root, arguments); });
      return Flow::kNext;
    };
  }

  int loops_ = 0;
};

// Turns exceptions of work() into user errors that begin with the template's name and the line.
template <class Work> void with_line(const std::string& name, const int& line, const Work& work) {
  try {
    work();
  } catch (const TemplateError& error) {
    fail_user(name, ", line ", line, ": ", error.what);
  }
}
}  // namespace

Template::Template(const std::string& source, std::string name) : name_(std::move(name)) {
  int line = 1;
  with_line(name_, line, [&] {
    std::vector<Token> tokens = read_tokens(source, line);
    program_ = std::make_shared<Program>(Program{Parser(std::move(tokens), line).parse()});
  });
}

std::string Template::render(const Dict& variables, Cost* cost) const {
  Budget budget;
  const struct AtTheEnd {
    Budget& budget;
    Cost* cost;
    ~AtTheEnd() {
      if (cost) *cost = {Budget::kSteps - budget.steps, Budget::kBytes - budget.bytes};
      for (const Value& value : budget.namespaces) value.dict()->items.clear();
    }
  } at_the_end{budget, cost};
  Scope root{budget};
  root.root = &root;
  add_functions(root.names, budget);
  for (const auto& [name, value] : variables.items) root.names[name] = value;
  std::string text;
  with_line(name_, root.line, [&] { run(program_->statements, root, text); });
  return text;
}
}  // namespace linnet::jinja
