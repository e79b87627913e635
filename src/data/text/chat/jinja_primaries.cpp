// What operators join: literals, names, subscripts, calls, filters and tests.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include "data/text/chat/jinja_expressions.h"
#include "data/text/chat/jinja_text.h"

namespace linnet::jinja {

Arguments CallArguments::evaluate(Scope& scope) const {
  Arguments arguments;
  scope.budget.make_list(positional.size() + 2 * named.size());
  for (const Expression& expression : positional) arguments.positional.push_back(expression(scope));
  for (const auto& [name, expression] : named) arguments.named.emplace_back(name, expression(scope));
  return arguments;
}

Expression ExpressionParser::parse_primary() {
  const Token token = take();
  switch (token.kind) {
    case Token::kString: {
      std::string text = token.text;
      while (peek().kind == Token::kString) text += take().text;
      return constant(text);
    }
    case Token::kInteger: return constant(static_cast<int64_t>(std::stoll(token.text)));
    case Token::kFloat: {
      double number = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
      return constant(number);
    }
    case Token::kName: return parse_name(token.text);
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
    default: break;
  }
  put_back();
  fail("an unexpected " + describe());
}

Expression ExpressionParser::parse_name(const std::string& name) {
  if (name == "true" || name == "True") return constant(true);
  if (name == "false" || name == "False") return constant(false);
  if (name == "none" || name == "None") return constant(None{});
  return [name](Scope& scope) {
    const Value* value = scope.find(name);
    return value ? *value : undefined(name, scope.budget);
  };
}

Expression ExpressionParser::parse_list() {
  std::vector<Expression> items;
  while (!take_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (take_operator("]")) break;
    items.push_back(parse_expression());
  }
  return list_of(std::move(items));
}

Expression ExpressionParser::parse_dict() {
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
      scope.budget.make_list(3 + dict.items.size() / 8);
      if (!name.text()) fail("a key of a dictionary is a " + name.type_name() + ", not a text");
      scope.budget.make_text(name.text()->size());
      dict.set(*name.text(), value(scope));
    }
    return dict;
  };
}

Expression ExpressionParser::parse_postfix(Expression value) {
  for (;;) {
    if (take_operator(".")) {
      const std::string name = peek().kind == Token::kInteger ? take().text : expect_name();
      value = [value, name](Scope& scope) {
        const Value object = value(scope);
        const Value method = find_method(object, name, scope.budget);
        return method.is_undefined() ? get_item(object, name, scope.budget) : method;
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

Expression ExpressionParser::parse_subscript(Expression value) {
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
      const Value item = get_item(object, index, scope.budget);
      return item.is_undefined() && index.text() ? find_method_or(item, object, *index.text(), scope) : item;
    };
  }
  return [value, begin = parts[0], end = parts[1], step = parts[2]](Scope& scope) {
    const auto bound = [&](const Expression& part) { return part ? part(scope) : Value(None{}); };
    return slice_of(value(scope), bound(begin), bound(end), bound(step), scope.budget);
  };
}

Value ExpressionParser::find_method_or(const Value& otherwise, const Value& object, const std::string& name,
                                       Scope& scope) {
  const Value method = find_method(object, name, scope.budget);
  return method.is_undefined() ? otherwise : method;
}

Value ExpressionParser::slice_of(const Value& object, const Value& begin, const Value& end, const Value& by,
                                 Budget& budget) {
  if (!object.text() && !object.list()) fail("a " + object.type_name() + " cannot be sliced");
  for (const Value* bound : {&begin, &end, &by})
    if (!bound->is_none() && !bound->is_integer()) fail("a slice needs whole numbers");
  const auto size = static_cast<int64_t>(length_of(object, budget));
  const int64_t step = by.is_none() ? 1 : std::clamp(by.integer(), -size - 1, size + 1);
  if (step == 0) fail("a slice's step is 0");
  const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
  const auto clamp = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    const int64_t location = bound.integer() < 0 ? bound.integer() + size : bound.integer();
    return std::min(std::max(location, least), most);
  };
  const int64_t first = clamp(begin, step > 0 ? 0 : size - 1), last = clamp(end, step > 0 ? size : -1);
  if (object.text() && step == 1) {  // the usual one, without a value for each character
    const std::string& text = *object.text();
    budget.make_text(text.size());
    const size_t from = character_offset(text, 0, static_cast<size_t>(first));
    const size_t to = character_offset(text, from, static_cast<size_t>(std::max<int64_t>(last - first, 0)));
    return text.substr(from, to - from);
  }
  const List characters = object.text() ? elements(object, budget) : List{};
  const List& items = object.text() ? characters : *object.list();
  const int64_t way = step > 0 ? last - first : first - last;
  budget.make_list(way > 0 ? static_cast<size_t>((way - 1) / std::abs(step) + 1) : 0);
  List chosen;
  for (int64_t i = first; step > 0 ? i < last : i > last; i += step) chosen.push_back(items[static_cast<size_t>(i)]);
  if (!object.text()) return chosen;
  std::string text;
  for (const Value& character : chosen) text += *character.text();
  return text;
}

CallArguments ExpressionParser::parse_arguments() {
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

Expression ExpressionParser::parse_call(Expression callee) {
  CallArguments arguments = parse_arguments();
  return [callee, arguments](Scope& scope) {
    const Value called = callee(scope);
    check_defined(called);
    if (!called.function()) fail("a " + called.type_name() + " cannot be called");
    return (*called.function())(arguments.evaluate(scope));
  };
}

Expression ExpressionParser::parse_filters(Expression value) {
  for (;;) {
    if (take_operator("|")) {
      const std::string name = expect_name();
      const Filter filter = find_filter(name);
      if (!filter) fail("the filter '" + name + "' is not supported");
      CallArguments arguments;
      if (take_operator("(")) arguments = parse_arguments();
      value = [value, filter, arguments](Scope& scope) {
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

Expression ExpressionParser::parse_test(Expression value) {
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
    return test(value(scope), arguments.evaluate(scope), scope.budget) != negated;
  };
}

}  // namespace linnet::jinja
