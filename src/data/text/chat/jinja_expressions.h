// The parser of expressions. Each function takes the tokens of what it is named after and returns a closure.
#pragma once
#include <string>
#include <utility>
#include <vector>
#include "data/text/chat/jinja_token_stream.h"

namespace linnet::jinja {

// The arguments of a call as they are written.
struct CallArguments {
  std::vector<Expression> positional;
  std::vector<std::pair<std::string, Expression>> named;
  Arguments evaluate(Scope& scope) const;
};

inline Expression constant(Value value) {
  return [value = std::move(value)](Scope&) { return value; };
}

class ExpressionParser : protected TokenStream {
 protected:
  using TokenStream::TokenStream;

  // An expression, or several with commas between: a list.
  Expression parse_tuple();
  // What a loop goes over: "if" behind it is the loop's.
  Expression parse_or_tuple() { return parse_or(); }
  Expression parse_expression();

 private:
  // From the loosest operators to the tightest.
  static Expression list_of(std::vector<Expression> items);
  Expression parse_or();
  Expression parse_and();
  Expression parse_not();
  // The operator of a comparison that stands here, or "".
  std::string take_comparison();
  static bool holds(const std::string& op, const Value& a, const Value& b, Budget& budget);
  Expression parse_comparison();
  Expression binary(Expression left, const std::string& op, Expression right);
  Expression parse_sum();
  Expression parse_concatenation();
  Expression parse_product();
  Expression parse_power();
  Expression parse_unary(bool with_filters);
  Expression parse_primary();
  Expression parse_name(const std::string& name);
  Expression parse_list();
  Expression parse_dict();
  Expression parse_postfix(Expression value);
  Expression parse_subscript(Expression value);
  static Value find_method_or(const Value& otherwise, const Value& object, const std::string& name, Scope& scope);
  static Value slice_of(const Value& object, const Value& begin, const Value& end, const Value& by, Budget& budget);
  CallArguments parse_arguments();
  Expression parse_call(Expression callee);
  Expression parse_filters(Expression value);
  Expression parse_test(Expression value);
};

}  // namespace linnet::jinja
