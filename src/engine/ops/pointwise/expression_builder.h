// Builds expressions, sharing equal instructions and folding trivial ones (x*1, x+0, 0*x).
#pragma once
#include <vector>
#include "engine/ir/tensor.h"
#include "engine/kernels/pointwise/expression.h"

namespace linnet {
class ExpressionBuilder {
 public:
  using Ref = int;  // index of an instruction
  Ref input(int operand);
  Ref constant(double value);
  Ref apply(Scalar function, Ref a, Ref b = -1, Ref c = -1);
  // Copies `expression` in, its operand k being `operands[k]`; returns its result.
  Ref inline_expression(const Expression& expression, const std::vector<Ref>& operands);
  // The same, returning all instructions' results.
  std::vector<Ref> inline_all(const Expression& expression, const std::vector<Ref>& operands);
  // Keeps what `result` needs, `result` last.
  Expression finish(Ref result) const;
  bool is_constant(Ref ref, double value) const;

 private:
  Ref append(const Instruction& instruction);
  std::vector<Instruction> code_;
};

// Nodes of one scalar function (engine/kernels/pointwise/expression.h) over tensors and numbers. An operand given twice
// is one operand of the node.

Tensor apply_scalar(Scalar function, At x);
Tensor apply_scalar(Scalar function, At a, Tensor b);
Tensor apply_scalar(Scalar function, At a, Tensor b, Tensor c);
Tensor apply_scalar(Scalar function, At a, double b);
Tensor apply_scalar(Scalar function, double a, At b);

// gelu's two forms as expressions, by which a lowering recognizes them.

Expression gelu_expression();       // x * (1 + erf(x / sqrt(2))) / 2
Expression gelu_tanh_expression();  // x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
}  // namespace linnet
