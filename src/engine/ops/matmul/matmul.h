// Matrix product, plain or batched, with an optional epilogue.
//
//   x = op(a) op(b) [+ bias] [+ accumulator],   out = activation(x)   or   out = scale * x * derivative'(aux)
//
// a [..., M, K], b [K, N]: the leading axes of a are rows too. Linear weights are [N, K], used with trans_b.
// a [..., M, K], b [..., K, N] with equal leading axes: independent products.
// trans_a: a is stored [..., K, M]; trans_b: b is stored [..., N, K].
// Operands in order: a, b, then any of bias [N], aux and accumulator; the last two have out's shape.
#pragma once
#include <optional>
#include "base/numbers.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct MatmulAttrs {
  bool trans_a = false, trans_b = false;
  // Set by the fuse passes, never by model code: gradients are taken of the plain product.
  bool bias = false;
  GemmActivation activation = GemmActivation::kNone;
  bool pre_activation = false;  // a second output: x
  GemmActivation derivative = GemmActivation::kNone;
  float derivative_scale = 1;
  bool accumulate = false;
  // A second output [M], fp32: op(a) summed over K. If a is the gradient of a linear layer's result and the product its
  // weight's gradient, these sums are its bias's. Needs trans_a.
  bool row_sums = false;
  // Set by the lower_precision pass. Ignored in float64 (the reference).
  Precision precision = Precision::kF32;
  // Set by the independent_rows pass; see GemmArgs. GPU kernels do not support it.
  bool independent_rows = false;
  bool has_aux() const { return derivative != GemmActivation::kNone; }
  // Whether the result is x, to which more can be added.
  bool is_sum() const { return activation == GemmActivation::kNone && !has_aux(); }
  void fields(FieldVisitor& visit) {
    visit("trans_a", trans_a), visit("trans_b", trans_b), visit("bias", bias), visit("activation", activation);
    visit("pre_activation", pre_activation), visit("derivative", derivative);
    visit("derivative_scale", derivative_scale), visit("accumulate", accumulate), visit("row_sums", row_sums);
    visit("precision", precision), visit("independent_rows", independent_rows);
  }
};

extern const OpDef kMatmul;

Tensor matmul(At a, Tensor b, bool trans_a = false, bool trans_b = false);

// For kernels: the sizes of a node's product.
struct MatmulSizes {
  int64_t batch, m, n, k;
};

inline MatmulSizes matmul_sizes(const MatmulAttrs& attrs, const Shape& a, const Shape& b) {
  const bool batched = b.rank() > 2;  // else leading axes of a are rows
  const int64_t rows = a.elements(batched ? a.rank() - 2 : 0, a.rank() - 1);
  return {.batch = batched ? b.elements(0, b.rank() - 2) : 1,
      .m = attrs.trans_a ? a[-1] : rows,
      .n = b[attrs.trans_b ? -2 : -1],
      .k = b[attrs.trans_b ? -1 : -2]};
}

// Runs a matmul whose second operand, a weight, is in memory as panels (engine/kernels/gemm/gemm.h), with the
// matmul's operands, attributes and bits. find_kernel() never chooses this kernel; who packs the weight does
// (engine/plan/plan.h).

// The panels that the kernel would read for this node; empty if it cannot, as for few rows.
std::optional<PanelsOf> panels_of(const KernelQuery& query);

extern const Kernel kPanelMatmul;  // its workspace is that of the matmul's kernel "gemm"

// Gradients of several linear layers at once, for GPUs (set by the pass group_weight_gradients). Operands are, for each
// layer, the gradient dy [rows, N] of its result and its input x [rows, K]; results the weight's gradient dy^T x [N, K]
// and the bias's, the sum of dy's rows [N]. Operands are rounded to bf16.
extern const OpDef kWeightGradients;
constexpr int kWeightTileRows = 64, kWeightTileColumns = 128;  // of a weight's gradient, by a block of threads
constexpr int64_t weight_tiles(int64_t rows, int64_t columns) {
  return ceil_div(rows, kWeightTileRows) * ceil_div(columns, kWeightTileColumns);
}

// On a GPU: the epilogue of a product that cuBLASLt cannot do in the same kernel.
//
// y = x [+ bias]; pre_activation = y; out = activation(y), or scale * y * derivative'(aux).
// x, aux, pre_activation, out are [rows, width] of `type`; x may be pre_activation or out. bias [width] of `bias_type`.
struct MatmulEpilogue {
  int64_t rows, width;
  DType type = DType::kF32;
  const void* x = nullptr;
  const void* bias = nullptr;
  DType bias_type = DType::kF32;
  const void* aux = nullptr;
  void *pre_activation = nullptr, *out = nullptr;
  GemmActivation activation = GemmActivation::kNone, derivative = GemmActivation::kNone;
  float scale = 1;
};
void matmul_epilogue(Device* device, const MatmulEpilogue& epilogue);

void round_to_bf16_on_device(Device* device, int64_t n, const float* from, void* to);  // n elements

// Products in which each row chooses one of several weights, such as a mixture's experts.
//
//   y[m] = x[m mod R] W[choice[m]]^T,   or without the transposition
//  x [R, K], weights [G N, K] (G matrices [N, K], one below the other), choice i32 [M] in [0, G), M a multiple of R:
// rows of x are read M / R times -> y [M, N]. Not transposed: x [R, N] -> y [M, K]. Unchosen weights cost nothing.
struct GroupedMatmulAttrs {
  int64_t groups = 1;
  bool transposed = true;
  bool exact = false;  // in fp32 whatever the precision of others is, as are its gradients
  Precision precision = Precision::kF32;
  bool independent_rows = false;  // see GemmArgs
  bool accumulate = false;        // of the gradient: to what its last operand holds
  void fields(FieldVisitor& visit) {
    visit("groups", groups), visit("transposed", transposed), visit("exact", exact), visit("precision", precision);
    visit("independent_rows", independent_rows), visit("accumulate", accumulate);
  }
};

extern const OpDef kGroupedMatmul;  // x, weights, choice -> y
// a [Ra, N], b [Rb, K], choice [M], [accumulator] -> for each weight the sum of a[m mod Ra]^T b[m mod Rb] over the rows
// that choose it: [G N, K]
extern const OpDef kGroupedMatmulGrad;

Tensor grouped_matmul(At x, Tensor weights, Tensor choice, const GroupedMatmulAttrs& attrs);
}  // namespace linnet
