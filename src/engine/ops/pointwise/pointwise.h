// Every elementwise computation is one op over a small expression (engine/kernels/pointwise/expression.h). Chains fuse
// by joining expressions; derivatives come from one table.
#pragma once
#include "engine/ir/graph.h"
#include "engine/kernels/pointwise/expression.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct PointwiseAttrs {
  Expression expression;  // instruction kInput k reads operand k
  void fields(FieldVisitor& visit);
  std::string text() const;
};

extern const OpDef kPointwise;

// The result has the largest operand's shape; each other one must be a scalar, suffix or prefix of it.
Tensor pointwise(Expression expression, std::span<const Tensor> operands, SourceLine where);

Tensor operator+(At a, Tensor b);
Tensor operator-(At a, Tensor b);
Tensor operator*(At a, Tensor b);
Tensor operator/(At a, Tensor b);
Tensor operator*(At a, double b);
Tensor operator+(At a, double b);
Tensor exp(At x);
Tensor rsqrt(At x);
Tensor square(At x);
Tensor relu(At x);
Tensor tanh(At x);
Tensor silu(At x);       // x * sigmoid(x), also called swish (Hendrycks & Gimpel 2016; Ramachandran et al. 2017)
Tensor softplus(At x);   // log(1 + exp(x)), without overflow
Tensor gelu(At x);       // x * Phi(x) with the exact error function (Hendrycks & Gimpel 2016)
Tensor gelu_tanh(At x);  // its approximation by a tanh, which GPT-2 uses

// d(expression)/d(operand k) times the incoming gradient, as an expression over the operands, the node's result
// (operand n) and the incoming gradient (operand n + 1).
Expression derivative(const Expression& expression, int operand, int operand_count);

// Appends `b` to `a`, whose result is operand `hole` of b; a's operands come first. (The fuse pass.)
Expression join(const Expression& a, int a_operands, const Expression& b, int hole);

// Rounds an expression's result to bf16 (Scalar::kToBf16), tells whether it is rounded, and removes the rounding. A
// node that stores its result in bf16 computes the same without it.
Expression rounded_to_bf16(Expression expression);
bool is_rounded_to_bf16(const Expression& expression);
Expression without_rounding(Expression expression);
}  // namespace linnet
