#include "engine/ops/pointwise/expression_builder.h"
#include <algorithm>

namespace linnet {

ExpressionBuilder::Ref ExpressionBuilder::append(const Instruction& instruction) {
  const auto found = std::find(code_.begin(), code_.end(), instruction);
  if (found != code_.end()) return static_cast<Ref>(found - code_.begin());
  code_.push_back(instruction);
  return static_cast<Ref>(code_.size()) - 1;
}

ExpressionBuilder::Ref ExpressionBuilder::input(int operand) {
  Instruction instruction{Scalar::kInput};
  instruction.a = static_cast<int16_t>(operand);
  return append(instruction);
}

ExpressionBuilder::Ref ExpressionBuilder::constant(double value) {
  Instruction instruction{Scalar::kConstant};
  instruction.constant = value;
  return append(instruction);
}

bool ExpressionBuilder::is_constant(Ref ref, double value) const {
  const Instruction& instruction = code_[static_cast<size_t>(ref)];
  return instruction.function == Scalar::kConstant && instruction.constant == value;
}

ExpressionBuilder::Ref ExpressionBuilder::apply(Scalar function, Ref a, Ref b, Ref c) {
  if (function == Scalar::kMul && is_constant(a, 1)) return b;
  if (function == Scalar::kMul && is_constant(b, 1)) return a;
  if (function == Scalar::kAdd && is_constant(a, 0)) return b;
  if (function == Scalar::kAdd && is_constant(b, 0)) return a;
  Instruction instruction{function};
  instruction.a = static_cast<int16_t>(a);
  instruction.b = static_cast<int16_t>(b);
  instruction.c = static_cast<int16_t>(c);
  return append(instruction);
}

std::vector<ExpressionBuilder::Ref> ExpressionBuilder::inline_all(const Expression& expression,
                                                                  const std::vector<Ref>& operands) {
  std::vector<Ref> location;
  const auto at = [&](int16_t index) { return index < 0 ? -1 : location[static_cast<size_t>(index)]; };
  for (const Instruction& i : expression.code) {
    if (i.function == Scalar::kInput) location.push_back(operands[static_cast<size_t>(i.a)]);
    else if (i.function == Scalar::kConstant) location.push_back(constant(i.constant));
    else location.push_back(apply(i.function, at(i.a), at(i.b), at(i.c)));
  }
  return location;
}

ExpressionBuilder::Ref ExpressionBuilder::inline_expression(const Expression& expression,
                                                            const std::vector<Ref>& operands) {
  return inline_all(expression, operands).back();
}

Expression ExpressionBuilder::finish(Ref result) const {
  std::vector<bool> needed(code_.size());
  needed[static_cast<size_t>(result)] = true;
  for (size_t i = code_.size(); i-- > 0;) {
    if (!needed[i] || code_[i].function == Scalar::kInput) continue;
    for (int16_t operand : {code_[i].a, code_[i].b, code_[i].c})
      if (operand >= 0) needed[static_cast<size_t>(operand)] = true;
  }
  Expression expression;
  std::vector<int16_t> moved(code_.size(), -1);
  for (size_t i = 0; i <= static_cast<size_t>(result); ++i) {
    if (!needed[i]) continue;
    Instruction instruction = code_[i];
    if (instruction.function != Scalar::kInput)
      for (int16_t* operand : {&instruction.a, &instruction.b, &instruction.c})
        if (*operand >= 0) *operand = moved[static_cast<size_t>(*operand)];
    moved[i] = static_cast<int16_t>(expression.code.size());
    expression.code.push_back(instruction);
  }
  return expression;
}

}  // namespace linnet
