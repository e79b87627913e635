// The parser of expressions. Each function takes the tokens of the construct in its name and returns a closure.
#include "base/numbers.h"
#include "data/text/chat/jinja_program.h"

namespace linnet::jinja {
namespace {
using Tokens = TokenStream;

Expression parse_unary(Tokens& tokens, bool with_filters);

struct CallArguments {
  std::vector<Expression> positional;
  std::vector<std::pair<std::string, Expression>> named;

  Arguments evaluate(Scope& scope) const {
    Arguments arguments;
    scope.budget.make_list(positional.size() + 2 * named.size());
    for (const Expression& expression : positional) arguments.positional.push_back(expression(scope));
    for (const auto& [name, expression] : named) arguments.named.emplace_back(name, expression(scope));
    return arguments;
  }
};

Expression list_of(std::vector<Expression> items) {
  return [items = std::move(items)](Scope& scope) -> Value {
    List list;
    scope.budget.make_list(items.size());
    for (const Expression& item : items) list.push_back(item(scope));
    return list;
  };
}

// Takes comma-separated items, and `close`.
template <class TakeItem> void take_items(Tokens& tokens, const char* close, const TakeItem& take_item) {
  for (bool first = true; !tokens.take_operator(close); first = false) {
    if (!first) tokens.expect_operator(",");
    if (!first && tokens.take_operator(close)) break;
    take_item();
  }
}

CallArguments parse_arguments(Tokens& tokens) {  // behind "("
  CallArguments arguments;
  take_items(tokens, ")", [&] {
    if (tokens.is_operator("*") || tokens.is_operator("**"))
      fail("arguments from a list or dictionary are not supported");
    if (tokens.peek().kind == Token::kName && tokens.is_operator("=", 1)) {
      const std::string name = tokens.take().text;
      tokens.take();
      arguments.named.emplace_back(name, parse_expression(tokens));
    } else {
      if (!arguments.named.empty()) fail("an argument without a name follows one with a name");
      arguments.positional.push_back(parse_expression(tokens));
    }
  });
  return arguments;
}

Expression parse_list(Tokens& tokens) {
  std::vector<Expression> items;
  take_items(tokens, "]", [&] { items.push_back(parse_expression(tokens)); });
  return list_of(std::move(items));
}

Expression parse_dict(Tokens& tokens) {
  std::vector<std::pair<Expression, Expression>> items;
  take_items(tokens, "}", [&] {
    Expression key = parse_expression(tokens);
    tokens.expect_operator(":");
    items.emplace_back(key, parse_expression(tokens));
  });
  return [items](Scope& scope) -> Value {
    Dict dict;
    for (const auto& [key, value] : items) {
      const Value name = key(scope);
      scope.budget.make_list(3 + dict.items.size() / 8);
      if (!name.text()) fail("a key of a dictionary is a " + name.type_name() + ", not a text");
      scope.budget.make_text(name.text()->size());
      dict.set(*name.text(), value(scope));
    }
    return dict;
  };
}

Expression parse_name(const std::string& name) {
  if (name == "true" || name == "True") return constant(true);
  if (name == "false" || name == "False") return constant(false);
  if (name == "none" || name == "None") return constant(None{});
  return [name](Scope& scope) {
    const Value* value = scope.find(name);
    return value ? *value : undefined(name, scope.budget);
  };
}

Expression parse_primary(Tokens& tokens) {
  const Token token = tokens.take();
  if (token.kind == Token::kName) return parse_name(token.text);
  if (token.kind == Token::kInteger) return constant(static_cast<int64_t>(std::stoll(token.text)));
  if (token.kind == Token::kFloat) return constant(parse_number<double>(token.text).value_or(0));
  if (token.kind == Token::kString) {
    std::string text = token.text;
    while (tokens.peek().kind == Token::kString) text += tokens.take().text;
    return constant(text);
  }
  const bool is_operator = token.kind == Token::kOperator;
  if (is_operator && token.text == "[") return parse_list(tokens);
  if (is_operator && token.text == "{") return parse_dict(tokens);
  if (!is_operator || token.text != "(") tokens.fail_at(1);
  if (tokens.take_operator(")")) return list_of({});
  Expression value = parse_tuple(tokens);
  tokens.expect_operator(")");
  return value;
}

Expression parse_subscript(Tokens& tokens, const Expression& value) {  // behind "["
  Expression parts[3];
  bool slice = false;
  for (Expression& part : parts) {
    if (!tokens.is_operator(":") && !tokens.is_operator("]")) part = parse_expression(tokens);
    if (!tokens.take_operator(":")) break;
    slice = true;
  }
  tokens.expect_operator("]");
  if (slice)
    return [value, begin = parts[0], end = parts[1], step = parts[2]](Scope& scope) {
      const auto bound = [&](const Expression& part) { return part ? part(scope) : Value(None{}); };
      return slice_of(value(scope), bound(begin), bound(end), bound(step), scope.budget);
    };
  if (!parts[0]) fail("an index is missing");
  return [value, key = parts[0]](Scope& scope) {
    const Value object = value(scope), index = key(scope);
    const Value item = get_item(object, index, scope.budget);
    if (!item.is_undefined() || !index.text()) return item;
    const Value method = find_method(object, *index.text(), scope.budget);
    return method.is_undefined() ? item : method;
  };
}

Expression parse_call(Tokens& tokens, const Expression& callee) {  // behind "("
  return [callee, arguments = parse_arguments(tokens)](Scope& scope) {
    const Value called = callee(scope);
    check_defined(called);
    if (!called.function()) fail("a " + called.type_name() + " cannot be called");
    return (*called.function())(arguments.evaluate(scope));
  };
}

Expression parse_postfix(Tokens& tokens, Expression value) {
  for (;;) {
    if (tokens.take_operator(".")) {
      const std::string name = tokens.peek().kind == Token::kInteger ? tokens.take().text : tokens.expect_name();
      value = [value, name](Scope& scope) {
        const Value object = value(scope);
        const Value method = find_method(object, name, scope.budget);
        return method.is_undefined() ? get_item(object, name, scope.budget) : method;
      };
    } else if (tokens.take_operator("[")) {
      value = parse_subscript(tokens, value);
    } else if (tokens.take_operator("(")) {
      value = parse_call(tokens, value);
    } else {
      return value;
    }
  }
}

Expression parse_test(Tokens& tokens, const Expression& value) {  // behind "is"
  const bool negated = tokens.take_name("not");
  const std::string name = tokens.expect_name();
  const Test test = find_test(name);
  if (!test) fail("the test '" + name + "' is not supported");
  CallArguments arguments;
  const auto begins_argument = [&] {  // which may stand without parentheses
    const Token& next = tokens.peek();
    constexpr const char* kKeywords[] = {"and", "or", "else", "if", "is", "in", "not"};
    if (next.kind == Token::kName) return std::ranges::find(kKeywords, next.text) == std::end(kKeywords);
    return next.kind == Token::kString || next.kind == Token::kInteger || next.kind == Token::kFloat ||
           tokens.is_operator("[") || tokens.is_operator("{");
  };
  if (tokens.take_operator("(")) arguments = parse_arguments(tokens);
  else if (begins_argument()) arguments.positional.push_back(parse_postfix(tokens, parse_primary(tokens)));
  return [value, negated, test, arguments](
             Scope& scope) -> Value { return test(value(scope), arguments.evaluate(scope), scope.budget) != negated; };
}

Expression parse_filters(Tokens& tokens, Expression value) {
  for (;;) {
    if (tokens.take_operator("|")) {
      const std::string name = tokens.expect_name();
      const Filter filter = find_filter(name);
      if (!filter) fail("the filter '" + name + "' is not supported");
      CallArguments arguments;
      if (tokens.take_operator("(")) arguments = parse_arguments(tokens);
      value = [value, filter, arguments](
                  Scope& scope) { return filter(value(scope), arguments.evaluate(scope), scope.budget); };
    } else if (tokens.take_name("is")) {
      value = parse_test(tokens, value);
    } else if (tokens.take_operator("(")) {
      value = parse_call(tokens, value);
    } else {
      return value;
    }
  }
}

Expression binary(const Expression& left, const std::string& op, const Expression& right) {
  return [left, op, right](Scope& scope) {
    const Value a = left(scope), b = right(scope);
    return operate(op, a, b, scope.budget);
  };
}

Expression parse_unary(Tokens& tokens, bool with_filters) {
  const Tokens::Nested nested(tokens);
  const bool has_sign = tokens.is_operator("-") || tokens.is_operator("+");
  const std::string sign = has_sign ? tokens.take().text : "";
  Expression value = has_sign ? binary(constant(0), sign, parse_unary(tokens, false)) : parse_primary(tokens);
  value = parse_postfix(tokens, value);
  return with_filters ? parse_filters(tokens, value) : value;
}

// Operators between two values, loosest first.
constexpr std::initializer_list<const char*> kOperators[] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};

Expression parse_operators(Tokens& tokens, size_t level = 0) {
  if (level == std::size(kOperators)) return parse_unary(tokens, true);
  Expression left = parse_operators(tokens, level + 1);
  while (std::ranges::any_of(kOperators[level], [&](const char* op) { return tokens.is_operator(op); })) {
    const std::string op = tokens.take().text;
    left = binary(left, op, parse_operators(tokens, level + 1));
  }
  return left;
}

// Takes a comparison operator, or returns "".
std::string take_comparison(Tokens& tokens) {
  for (const char* op : {"==", "!=", "<=", ">=", "<", ">"})
    if (tokens.take_operator(op)) return op;
  if (tokens.take_name("in")) return "in";
  if (tokens.is_name("not") && tokens.is_name("in", 1)) return tokens.take(), tokens.take(), "not in";
  return "";
}

Expression parse_comparison(Tokens& tokens) {
  Expression first = parse_operators(tokens);
  std::vector<std::pair<std::string, Expression>> rest;
  for (std::string op = take_comparison(tokens); !op.empty(); op = take_comparison(tokens))
    rest.emplace_back(op, parse_operators(tokens));
  if (rest.empty()) return first;
  return [first, rest](Scope& scope) -> Value {
    Value left = first(scope);
    for (const auto& [op, expression] : rest) {
      Value right = expression(scope);
      if (!holds(op, left, right, scope.budget)) return false;
      left = std::move(right);
    }
    return true;
  };
}

Expression parse_not(Tokens& tokens) {
  if (!tokens.take_name("not")) return parse_comparison(tokens);
  const Tokens::Nested nested(tokens);
  return [value = parse_not(tokens)](Scope& scope) -> Value { return !value(scope).truth(); };
}

// "or" between parts joined by "and".
Expression parse_logic(Tokens& tokens, bool is_or) {
  const auto parse_part = [&] { return is_or ? parse_logic(tokens, false) : parse_not(tokens); };
  Expression left = parse_part();
  while (tokens.take_name(is_or ? "or" : "and"))
    left = [left, right = parse_part(), is_or](Scope& scope) {
      Value value = left(scope);
      return value.truth() == is_or ? value : right(scope);
    };
  return left;
}
}  // namespace

Expression parse_loop_range(Tokens& tokens) { return parse_logic(tokens, true); }

Expression parse_expression(Tokens& tokens) {
  const Tokens::Nested nested(tokens);
  Expression value = parse_loop_range(tokens);
  while (tokens.take_name("if")) {
    Expression condition = parse_loop_range(tokens), otherwise = constant(Value());
    if (tokens.take_name("else")) otherwise = parse_expression(tokens);
    value = [value, condition, otherwise](
                Scope& scope) { return condition(scope).truth() ? value(scope) : otherwise(scope); };
  }
  return value;
}

Expression parse_tuple(Tokens& tokens) {
  Expression first = parse_expression(tokens);
  if (!tokens.is_operator(",")) return first;
  std::vector<Expression> items{first};
  while (tokens.take_operator(",")) {
    const Token::Kind kind = tokens.peek().kind;
    if (kind == Token::kBlockEnd || kind == Token::kExprEnd || tokens.is_operator(")")) break;
    items.push_back(parse_expression(tokens));
  }
  return list_of(std::move(items));
}
}  // namespace linnet::jinja
