// Expressions of elements written as arithmetic: a - b * tanh(x).
#pragma once
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace formula {
// A number of a formula: an operand's element, a constant, or a computed one. Truth values are 0 and 1.
class Number {
 public:
  Number(double constant) : constant_(constant) {}  // implicit: formulas mix both
  Number(ExpressionBuilder& builder, ExpressionBuilder::Ref ref) : builder_(&builder), ref_(ref) {}
  ExpressionBuilder* builder() const { return builder_; }  // null: a constant
  ExpressionBuilder::Ref in(ExpressionBuilder& builder) const { return builder_ ? ref_ : builder.constant(constant_); }

 private:
  ExpressionBuilder* builder_ = nullptr;
  ExpressionBuilder::Ref ref_ = -1;
  double constant_ = 0;
};

// Not all of them are constants.
Number apply(Scalar function, std::initializer_list<Number> in);
Number apply(Scalar function, const Number& x);
Number apply(Scalar function, const Number& a, const Number& b);
inline Number operator+(const Number& a, const Number& b) { return apply(Scalar::kAdd, a, b); }
inline Number operator-(const Number& a, const Number& b) { return apply(Scalar::kSub, a, b); }
inline Number operator*(const Number& a, const Number& b) { return apply(Scalar::kMul, a, b); }
inline Number operator/(const Number& a, const Number& b) { return apply(Scalar::kDiv, a, b); }
inline Number operator>(const Number& a, const Number& b) { return apply(Scalar::kGreater, a, b); }
inline Number operator-(const Number& x) { return apply(Scalar::kNeg, x); }
inline Number operator!(const Number& x) { return 1 - x; }
inline Number equal(const Number& a, const Number& b) { return apply(Scalar::kEqual, a, b); }
inline Number select(const Number& condition, const Number& yes, const Number& no) {
  return apply(Scalar::kSelect, {condition, yes, no});
}
inline Number min(const Number& a, const Number& b) { return apply(Scalar::kMin, a, b); }
inline Number max(const Number& a, const Number& b) { return apply(Scalar::kMax, a, b); }
inline Number pow(const Number& a, const Number& b) { return apply(Scalar::kPow, a, b); }
inline Number abs(const Number& x) { return apply(Scalar::kAbs, x); }
inline Number cos(const Number& x) { return apply(Scalar::kCos, x); }
inline Number erf(const Number& x) { return apply(Scalar::kErf, x); }
inline Number exp(const Number& x) { return apply(Scalar::kExp, x); }
inline Number floor(const Number& x) { return apply(Scalar::kFloor, x); }
inline Number log(const Number& x) { return apply(Scalar::kLog, x); }
inline Number relu(const Number& x) { return apply(Scalar::kRelu, x); }
inline Number round(const Number& x) { return apply(Scalar::kRound, x); }
inline Number rsqrt(const Number& x) { return apply(Scalar::kRsqrt, x); }
inline Number sigmoid(const Number& x) { return apply(Scalar::kSigmoid, x); }
inline Number sin(const Number& x) { return apply(Scalar::kSin, x); }
inline Number sqrt(const Number& x) { return apply(Scalar::kSqrt, x); }
inline Number square(const Number& x) { return apply(Scalar::kSquare, x); }
inline Number tanh(const Number& x) { return apply(Scalar::kTanh, x); }
Number truncated(const Number& x);  // towards zero

// Makes the expression of one formula, with instructions in the order in which C++ evaluates it. C++ leaves the order
// of an operator's two operands open: at most one of them may compute something, the other is named before.
class FormulaBuilder {
 public:
  Number operator[](int operand) { return {builder_, builder_.input(operand)}; }  // its element
  // Recorded here; a constant within a formula is recorded by the operator that takes it.
  Number constant(double value) { return {builder_, builder_.constant(value)}; }
  Expression finish(Number result) { return builder_.finish(result.in(builder_)); }
  Tensor finish(Number result, std::span<const Tensor> operands, SourceLine where = SourceLine::current()) {
    return pointwise(finish(result), operands, where);
  }

 private:
  ExpressionBuilder builder_;
};
}  // namespace formula

using formula::FormulaBuilder;
using formula::Number;
}  // namespace linnet
