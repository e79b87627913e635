// Matrix products C = op(A) op(B) with fused bias, activation functions, their derivatives and additions. Values are
// fp32; products may be in bf16, and then operands and results may be bf16 in memory. An element of C depends on the
// shape and the instruction set, never on the number of threads: it is summed over k in order, in blocks whose length
// the shape decides. With `independent_rows` it does not depend on the number of rows either. NaN and infinity in A or
// B reach C as arithmetic says.
#pragma once
#include <cstddef>
#include <cstdint>
#include "engine/kernels/gemm/activation.h"
#include "engine/kernels/precision.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
class ThreadPool;
struct PackedWeight;

//   x = op(A) op(B) [+ C or residual] [+ bias],   C = activation(x) [* derivative'(aux)]
// Row-major. Any size may be zero: k = 0 gives the bias alone (or 0).
struct GemmArgs {
  int64_t batch = 1;  // independent products; *_batch are their distances in elements (0: one operand for all)
  int64_t m = 0, n = 0, k = 0;
  StoredFloats a;  // [m, k]; trans_a: stored as [k, m]
  int64_t lda = 0, a_batch = 0;
  bool trans_a = false;
  StoredFloats b;  // [k, n]; trans_b: stored as [n, k] (the weight [out, in] of a linear layer)
  int64_t ldb = 0, b_batch = 0;
  bool trans_b = false;
  // B as codes (quantized/packed_weight.h) without a tail, unpacked into panels of B; b is not read. For a single fp32
  // product that reads panels (gemm/panels.h).
  const PackedWeight* b_codes = nullptr;
  MutableStoredFloats c;  // [m, n]; must not overlap a or b
  int64_t ldc = 0, c_batch = 0;
  bool accumulate = false;      // C += instead of C = (gradients)
  const float* bias = nullptr;  // [n], added to every row
  // With C's layout (ldc, c_batch); residual may be C's memory, the others must not overlap it.
  StoredFloats residual;    // [m, n], added; not together with `accumulate`
  bool bias_first = false;  // adds the bias before the residual: fp32 products that read panels (gemm/panels.h)
  GemmActivation activation = GemmActivation::kNone;
  MutableStoredFloats pre_activation;  // [m, n]: also takes x, which the activation function is applied to
  // Multiplies the result by this function's derivative at aux [m, n] (for kRelu: 1 if aux > 0, else 0), to
  // backpropagate through the function. Excludes `activation`.
  GemmActivation derivative = GemmActivation::kNone;
  float derivative_scale = 1;  // and by this, before
  StoredFloats aux;
  // kBf16 allows rounding of operands to bf16 (round_to_bf16) while they are packed; sums stay fp32. Products with few
  // rows or columns, and processors without gemm_has_bf16(), compute in fp32.
  Precision precision = Precision::kF32;
  // Computes any number of rows like a product of few rows: a row has the same bits whatever the other rows are, at a
  // cost in speed for many rows. No effect with trans_a.
  bool independent_rows = false;
};

// Whether the current instruction set (engine/kernels/isa.h) multiplies in bf16.
bool gemm_has_bf16();

// Whether any of the matrices is bf16 in memory, in any mixture. That needs gemm_has_bf16(), the precision kBf16 and k
// > 0, and `independent_rows` is ignored. The bits equal those of a product with packed fp32 operands of the same
// values; epilogues compute in fp32 before the result is rounded once, like round_to_bf16. But GELU of a bf16 C is that
// of x rounded to bf16, with or without `pre_activation`, so that recomputing it from what is stored gives the same.
bool is_stored_in_bf16(const GemmArgs& args);

// Bytes of workspace, at most about 12 MB + 1 MB per thread, the same for every instruction set, transposition and
// precision. `in_bf16`: for is_stored_in_bf16().
size_t gemm_workspace(int64_t batch, int64_t m, int64_t n, int64_t k, int threads, bool in_bf16 = false);

// `workspace` is 64-byte aligned and at least gemm_workspace(..., pool.size()) long. Allocates nothing.
void gemm(const GemmArgs& args, std::byte* workspace, ThreadPool& pool);

// A W^T of a few rows and a weight that may lie in memory as bf16, which is read in place, once: computed as gemm()
// computes products of few rows (or any, with independent_rows) in fp32; args.b may be bf16, and the bits are those of
// a weight in fp32 with the same numbers. One product, without trans_a and with trans_b; all else is fp32.
void gemm_few_rows(const GemmArgs& args, ThreadPool& pool);
}  // namespace linnet
