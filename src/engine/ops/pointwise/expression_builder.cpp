#include <algorithm>
#include <numbers>
#include "base/error.h"
#include "engine/ops/pointwise/formula.h"

namespace linnet {
ExpressionBuilder::Ref ExpressionBuilder::append(const Instruction& instruction) {
  const auto found = std::find(code_.begin(), code_.end(), instruction);
  if (found != code_.end()) return static_cast<Ref>(found - code_.begin());
  code_.push_back(instruction);
  return static_cast<Ref>(code_.size()) - 1;
}

ExpressionBuilder::Ref ExpressionBuilder::constant(double value) {
  return append({.function = Scalar::kConstant, .constant = value});
}

bool ExpressionBuilder::is_constant(Ref ref, double value) const {
  const Instruction& instruction = code_[ref];
  return instruction.function == Scalar::kConstant && instruction.constant == value;
}

ExpressionBuilder::Ref ExpressionBuilder::apply(Scalar function, Ref a, Ref b, Ref c) {
  if (function == Scalar::kMul && is_constant(a, 1)) return b;
  if (function == Scalar::kMul && is_constant(b, 1)) return a;
  if (function == Scalar::kAdd && is_constant(a, 0)) return b;
  if (function == Scalar::kAdd && is_constant(b, 0)) return a;
  return append({function, static_cast<int16_t>(a), static_cast<int16_t>(b), static_cast<int16_t>(c)});
}

std::vector<ExpressionBuilder::Ref> ExpressionBuilder::inline_all(
    const Expression& expression, const std::vector<Ref>& operands) {
  std::vector<Ref> location;
  const auto at = [&](int16_t index) { return index < 0 ? -1 : location[index]; };
  for (const Instruction& i : expression.code) {
    if (i.function == Scalar::kInput) location.push_back(operands[i.a]);
    else if (i.function == Scalar::kConstant) location.push_back(constant(i.constant));
    else location.push_back(apply(i.function, at(i.a), at(i.b), at(i.c)));
  }
  return location;
}

Expression ExpressionBuilder::finish(Ref result) const {
  std::vector<bool> needed(code_.size());
  needed[result] = true;
  for (size_t i = code_.size(); i-- > 0;) {
    if (!needed[i] || code_[i].function == Scalar::kInput) continue;
    for (int16_t operand : {code_[i].a, code_[i].b, code_[i].c})
      if (operand >= 0) needed[operand] = true;
  }
  Expression expression;
  std::vector<int16_t> moved(code_.size(), -1);
  for (size_t i = 0; i <= static_cast<size_t>(result); ++i) {
    if (!needed[i]) continue;
    Instruction instruction = code_[i];
    if (instruction.function != Scalar::kInput)
      for (int16_t* operand : {&instruction.a, &instruction.b, &instruction.c})
        if (*operand >= 0) *operand = moved[*operand];
    moved[i] = static_cast<int16_t>(expression.code.size());
    expression.code.push_back(instruction);
  }
  return expression;
}

namespace formula {
Number apply(Scalar function, std::initializer_list<Number> in) {
  const auto* computed = std::ranges::find_if(in, [](const Number& x) { return x.builder() != nullptr; });
  if (computed == in.end()) fail_internal("a formula of constants alone");
  ExpressionBuilder& e = *computed->builder();
  ExpressionBuilder::Ref refs[3] = {-1, -1, -1};
  std::ranges::transform(in, refs, [&](const Number& x) { return x.in(e); });
  return {e, e.apply(function, refs[0], refs[1], refs[2])};
}

Number apply(Scalar function, const Number& x) { return apply(function, std::initializer_list<Number>{x}); }
Number apply(Scalar function, const Number& a, const Number& b) {
  return apply(function, std::initializer_list<Number>{a, b});
}

Number truncated(const Number& x) { return select(0 > x, -floor(-x), floor(x)); }
}  // namespace formula

namespace {
// The table of derivatives, one row per scalar function, and reverse accumulation over an expression's instructions.
using Ref = ExpressionBuilder::Ref;

// d(function)/d(operand `which`) times dy. a, b: the operands' values; y: the function's value. Rows in terms of y
// (exp, tanh, relu, ...) let the backward pass read the result, so that the operand need not be kept.
Number table_row(Scalar function, int which, Number a, Number b, Number y, Number dy) {
  switch (function) {
    case Scalar::kAdd:
    case Scalar::kToBf16:  // rounding passes on the gradient as it is
      return dy;
    case Scalar::kSub: return which == 0 ? dy : -dy;
    case Scalar::kMul: return dy * (which == 0 ? b : a);
    case Scalar::kDiv: return which == 0 ? dy / b : -(dy * y / b);
    case Scalar::kMax: return which == 0 ? select(b > a, 0, dy) : select(b > a, dy, 0);
    case Scalar::kMin: return which == 0 ? select(a > b, 0, dy) : select(a > b, dy, 0);
    case Scalar::kNeg: return -dy;
    case Scalar::kExp: return dy * y;
    case Scalar::kLog: return dy / a;
    case Scalar::kSqrt: return dy * 0.5 / y;
    case Scalar::kRsqrt: {
      const Number cube = y * (y * y);
      return dy * -0.5 * cube;
    }
    case Scalar::kReciprocal: return -(dy * (y * y));
    case Scalar::kTanh: return dy * (1 - y * y);
    case Scalar::kSigmoid: return dy * (y * (1 - y));
    case Scalar::kErf: return dy * (2 * std::numbers::inv_sqrtpi * exp(-square(a)));
    case Scalar::kRelu: return select(y > 0, dy, 0);
    case Scalar::kSquare: return dy * (2 * a);
    case Scalar::kAbs: {
      const Number is_negative = 0 > a;
      return dy * ((a > 0) - is_negative);  // 0 at 0
    }
    case Scalar::kSin: return dy * cos(a);
    case Scalar::kCos: return -(dy * sin(a));
    case Scalar::kGreater:
    case Scalar::kEqual:
    case Scalar::kFloor:
    case Scalar::kRound: return 0;
    case Scalar::kPow: {
      if (which == 0) return dy * (b * pow(a, b - 1));
      const Number slope = y * log(a);
      return dy * select(a > 0, slope, 0);
    }
    case Scalar::kAtan: return dy / (1 + a * a);
    case Scalar::kSelect:
      if (which == 0) return 0;
      return which == 1 ? select(a, dy, 0) : select(a, 0, dy);
    case Scalar::kInput:
    case Scalar::kConstant: break;
  }
  fail_internal("no derivative for a scalar function");
}

// At most three tensors. One that is given twice becomes one operand.
Tensor apply_to(Scalar function, std::initializer_list<Tensor> tensors, SourceLine where) {
  ExpressionBuilder e;
  std::vector<Tensor> operands;
  std::array<Ref, 3> refs{-1, -1, -1};
  for (size_t i = 0; const Tensor& tensor : tensors) {
    const auto is_same = [&](const Tensor& x) { return x.graph == tensor.graph && x.id == tensor.id; };
    const auto found = std::ranges::find_if(operands, is_same);
    refs[i++] = e.input(static_cast<int>(found - operands.begin()));
    if (found == operands.end()) operands.push_back(tensor);
  }
  return pointwise(e.finish(e.apply(function, refs[0], refs[1], refs[2])), operands, where);
}
}  // namespace

Tensor apply_scalar(Scalar function, At x) { return apply_to(function, {x.value}, x.where); }
Tensor apply_scalar(Scalar function, At a, Tensor b) { return apply_to(function, {a.value, b}, a.where); }
Tensor apply_scalar(Scalar function, At a, Tensor b, Tensor c) { return apply_to(function, {a.value, b, c}, a.where); }

Tensor apply_scalar(Scalar function, At a, double b) {
  FormulaBuilder f;
  return f.finish(formula::apply(function, {f[0], b}), std::array{a.value}, a.where);
}

Tensor apply_scalar(Scalar function, double a, At b) {
  FormulaBuilder f;
  return f.finish(formula::apply(function, {f.constant(a), f[0]}), std::array{b.value}, b.where);
}

Expression derivative(const Expression& expression, int operand, int operand_count) {
  ExpressionBuilder e;
  const std::vector<Ref> operands = mapped(operand_count, [&](int k) { return e.input(k); });
  const auto& code = expression.code;
  std::vector<Ref> value = e.inline_all(expression, operands);
  if (code.back().function != Scalar::kInput) value.back() = e.input(operand_count);  // the node's own result
  const Ref zero = e.constant(0);
  std::vector<Ref> adjoint(code.size(), zero);
  adjoint.back() = e.input(operand_count + 1);
  Ref result = zero;
  for (size_t i = code.size(); i-- > 0;) {
    const Instruction& instruction = code[i];
    if (e.is_constant(adjoint[i], 0) || instruction.function == Scalar::kConstant) continue;
    if (instruction.function == Scalar::kInput) {
      if (instruction.a == operand) result = e.apply(Scalar::kAdd, result, adjoint[i]);
      continue;
    }
    const auto at = [&](int16_t index) { return Number(e, index < 0 ? -1 : value[index]); };
    const Number y(e, value[i]), dy(e, adjoint[i]);
    const int16_t sources[] = {instruction.a, instruction.b, instruction.c};
    for (int which = 0; which < scalar_arity(instruction.function); ++which) {
      Ref& sum = adjoint[sources[which]];
      const Ref part = table_row(instruction.function, which, at(instruction.a), at(instruction.b), y, dy).in(e);
      if (!e.is_constant(part, 0)) sum = e.apply(Scalar::kAdd, sum, part);
    }
  }
  return e.finish(result);
}
}  // namespace linnet
