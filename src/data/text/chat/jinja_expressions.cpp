#include "data/text/chat/jinja_expressions.h"

namespace linnet::jinja {

Expression ExpressionParser::parse_tuple() {
  Expression first = parse_expression();
  if (!is_operator(",")) return first;
  std::vector<Expression> items{first};
  while (take_operator(",")) {
    if (peek().kind == Token::kBlockEnd || peek().kind == Token::kVariableEnd || is_operator(")")) break;
    items.push_back(parse_expression());
  }
  return list_of(std::move(items));
}

Expression ExpressionParser::list_of(std::vector<Expression> items) {
  return [items = std::move(items)](Scope& scope) -> Value {
    List list;
    scope.budget.make_list(items.size());
    for (const Expression& item : items) list.push_back(item(scope));
    return list;
  };
}

Expression ExpressionParser::parse_expression() {
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

Expression ExpressionParser::parse_or() {
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

Expression ExpressionParser::parse_and() {
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

Expression ExpressionParser::parse_not() {
  if (!take_name("not")) return parse_comparison();
  const Nested nested(depth_);
  Expression value = parse_not();
  return [value](Scope& scope) -> Value { return !value(scope).truth(); };
}

std::string ExpressionParser::take_comparison() {
  for (const char* op : {"==", "!=", "<=", ">=", "<", ">"})
    if (take_operator(op)) return op;
  if (take_name("in")) return "in";
  if (is_name("not") && is_name("in", 1)) return take(), take(), "not in";
  return "";
}

bool ExpressionParser::holds(const std::string& op, const Value& a, const Value& b, Budget& budget) {
  if (op == "==") return equal(a, b, budget);
  if (op == "!=") return !equal(a, b, budget);
  if (op == "in") return contains(b, a, budget);
  if (op == "not in") return !contains(b, a, budget);
  const int order = compare(a, b, budget);
  return op == "<" ? order < 0 : op == ">" ? order > 0 : op == "<=" ? order <= 0 : order >= 0;
}

Expression ExpressionParser::parse_comparison() {
  Expression first = parse_sum();
  std::vector<std::pair<std::string, Expression>> rest;
  for (std::string op = take_comparison(); !op.empty(); op = take_comparison()) rest.emplace_back(op, parse_sum());
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

Expression ExpressionParser::binary(Expression left, const std::string& op, Expression right) {
  return [left, op, right](Scope& scope) {
    const Value a = left(scope), b = right(scope);
    return op == "+" ? add(a, b, scope.budget) : arithmetic(op, a, b, scope.budget);
  };
}

Expression ExpressionParser::parse_sum() {
  Expression left = parse_concatenation();
  while (is_operator("+") || is_operator("-")) {
    const std::string op = take().text;
    left = binary(left, op, parse_concatenation());
  }
  return left;
}

Expression ExpressionParser::parse_concatenation() {
  Expression left = parse_product();
  while (take_operator("~")) {
    Expression right = parse_product();
    left = [left, right](Scope& scope) -> Value {
      std::string text = to_text(left(scope), scope.budget);
      append_text(right(scope), text, scope.budget);
      return text;
    };
  }
  return left;
}

Expression ExpressionParser::parse_product() {
  Expression left = parse_power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const std::string op = take().text;
    left = binary(left, op, parse_power());
  }
  return left;
}

Expression ExpressionParser::parse_power() {
  Expression left = parse_unary(true);
  while (take_operator("**")) left = binary(left, "**", parse_unary(true));
  return left;
}

Expression ExpressionParser::parse_unary(bool with_filters) {
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

}  // namespace linnet::jinja
