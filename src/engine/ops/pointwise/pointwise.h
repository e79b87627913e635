// Every elementwise computation is one op over a small expression (engine/kernels/pointwise/expression.h). Chains fuse
// by joining expressions; derivatives come from one table.
#pragma once
#include "engine/kernels/pointwise/expression.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct PointwiseAttrs {
  Expression expression;  // instruction kInput k reads operand k
  void fields(FieldVisitor& visit) { visit("code", expression.code); }
  std::string text() const;
};

// The sum of an expression's values, of the shape `full`, to a smaller shape (sum_to). fuse_sums makes it of both
// nodes.
struct PointwiseSumAttrs {
  Expression expression;
  Shape full, shape;
  void fields(FieldVisitor& visit) { visit("code", expression.code), visit("full", full), visit("shape", shape); }
};

extern const OpDef kPointwise, kPointwiseSum;

// Operands are broadcast to their common shape.
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

// CUDA source of an elementwise expression: one kernel, a thread for `step` neighbors of the result. It computes in
// fp32 with the definitions of engine/kernels/pointwise/expression.h and needs no header, so that NVRTC compiles it
// anywhere; tests also compile it for the CPU.
struct PointwiseSource {
  struct Operand {
    DType dtype;  // f32 or bf16
    Broadcast kind;
  };
  const Expression& expression;
  std::vector<Operand> operands;
  DType result;
  // Divides the number of elements of the result, of a suffix and a prefix's repetitions; operands and result are
  // aligned to min(step elements, 16 bytes). 1: no conditions.
  int step = 1;
  bool wide_indices = false;  // 2^31 elements or more
};

constexpr int kPointwiseThreads = 256;

std::string pointwise_prelude();  // shared by all such kernels
// struct PointwiseArguments and begin_kernel() of engine/kernels/cuda/launch.cuh as text.
std::string pointwise_arguments_text();
// extern "C" __global__ void name(PointwiseArguments)
std::string pointwise_kernel(const PointwiseSource& source, const std::string& name);

// The argument of a generated kernel, whose source holds this struct as text, too.

struct PointwiseArguments {
  long long count;
  const void* in[16];
  long long size[16];  // of a suffix, its elements; of a prefix, how often each is repeated
  void* out;
};

// Builds expressions, sharing equal instructions and folding trivial ones (x * 1, x + 0).
class ExpressionBuilder {
 public:
  using Ref = int;  // index of an instruction
  Ref input(int operand) { return append({.function = Scalar::kInput, .a = static_cast<int16_t>(operand)}); }
  Ref constant(double value);
  Ref apply(Scalar function, Ref a, Ref b = -1, Ref c = -1);
  // Copies `expression` in, its operand k being `operands[k]`; returns its instructions' results, its own last.
  std::vector<Ref> inline_all(const Expression& expression, const std::vector<Ref>& operands);
  Expression finish(Ref result) const;  // keeps what `result` needs, `result` last
  bool is_constant(Ref ref, double value) const;

 private:
  Ref append(const Instruction& instruction);
  std::vector<Instruction> code_;
};

// Nodes of one scalar function over tensors and numbers. An operand given twice is one operand of the node.

Tensor apply_scalar(Scalar function, At x);
Tensor apply_scalar(Scalar function, At a, Tensor b);
Tensor apply_scalar(Scalar function, At a, Tensor b, Tensor c);
Tensor apply_scalar(Scalar function, At a, double b);
Tensor apply_scalar(Scalar function, double a, At b);

// gelu's two forms as expressions, by which a lowering recognizes them.

Expression gelu_expression();       // x * (1 + erf(x / sqrt(2))) / 2
Expression gelu_tanh_expression();  // x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
}  // namespace linnet
