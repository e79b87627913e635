// Matrix products C = op(A) op(B) with fused bias, activation functions, their derivatives and additions. Values are
// fp32; products may be in bf16, and then operands and results may be bf16 in memory. An element of C depends on the
// shape and the instruction set, never on the number of threads: it is summed over k in order, in blocks whose length
// the shape decides. With `independent_rows` it does not depend on the number of rows either. NaN and infinity in A or
// B reach C as arithmetic says.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include "base/enum_names.h"
#include "engine/kernels/precision.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
class ThreadPool;
struct PackedWeight;

// Functions fused into products and convolutions, with the same bits as ops/pointwise. NaN stays NaN. The first four
// have derivatives. kSilu: x sigmoid(x); kHardSwish: x max(0, min(1, x / 6 + 1 / 2)); kRelu6: ReLU up to 6.
enum class GemmActivation : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kSilu, kHardSwish, kRelu6 };
template <> inline constexpr std::array kEnumNames<GemmActivation>{
    "none", "relu", "gelu", "gelu_tanh", "silu", "hard_swish", "relu6"};

// In double precision, for references: the functions, and the slopes of the first four.
inline double gemm_activation(GemmActivation f, double x) {
  constexpr double kRoot = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kCube = 0.044715;
  switch (f) {
    case GemmActivation::kNone: return x;
    case GemmActivation::kRelu: return x < 0 ? 0 : x;
    case GemmActivation::kGelu: return x * (1 + std::erf(x / std::numbers::sqrt2)) / 2;
    case GemmActivation::kGeluTanh: return x * (1 + std::tanh(kRoot * (x + kCube * x * x * x))) / 2;
    case GemmActivation::kSilu: return x / (1 + std::exp(-x));
    case GemmActivation::kHardSwish: return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
    case GemmActivation::kRelu6: return std::clamp(x, 0.0, 6.0);
  }
  return x;
}

inline double gemm_slope(GemmActivation f, double x) {
  constexpr double kRoot = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kCube = 0.044715;
  switch (f) {
    case GemmActivation::kRelu: return x > 0 ? 1 : 0;
    case GemmActivation::kGelu:
      return (1 + std::erf(x / std::numbers::sqrt2)) / 2 +
             x * std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    case GemmActivation::kGeluTanh: {
      const double tanh = std::tanh(kRoot * (x + kCube * x * x * x));
      return (1 + tanh) / 2 + x / 2 * (1 - tanh * tanh) * kRoot * (1 + 3 * kCube * x * x);
    }
    case GemmActivation::kNone: return 1;
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}

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
  // product that reads panels.
  const PackedWeight* b_codes = nullptr;
  MutableStoredFloats c;  // [m, n]; must not overlap a or b
  int64_t ldc = 0, c_batch = 0;
  bool accumulate = false;      // C += instead of C = (gradients)
  const float* bias = nullptr;  // [n], added to every row
  // With C's layout (ldc, c_batch); residual may be C's memory, the others must not overlap it.
  StoredFloats residual;    // [m, n], added; not together with `accumulate`
  bool bias_first = false;  // adds the bias before the residual: fp32 products that read panels
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
  // Computes many rows like few, slower, so that a row's bits depend on no other row. No effect with trans_a.
  bool independent_rows = false;
};

// Whether the current instruction set (engine/kernels/processor.h) multiplies in bf16.
bool gemm_has_bf16();

// Whether any of the matrices is bf16 in memory, in any mixture. That needs gemm_has_bf16(), the precision kBf16 and k
// > 0, and `independent_rows` is ignored. The bits equal those of a product with packed fp32 operands of the same
// values; epilogues compute in fp32 before the result is rounded once, like round_to_bf16. But GELU of a bf16 C is that
// of x rounded to bf16, with or without `pre_activation`, so that recomputing it from what is stored gives the same.
bool is_stored_in_bf16(const GemmArgs& args);
bool has_bf16_results(const GemmArgs& args);  // whether C or a matrix beside it is

// Bytes of workspace, at most about 12 MB + 1 MB per thread, the same for every instruction set, transposition and
// precision. `in_bf16`: for is_stored_in_bf16().
size_t gemm_workspace(int64_t batch, int64_t m, int64_t n, int64_t k, int threads, bool in_bf16 = false);

// `workspace` is 64-byte aligned and at least gemm_workspace(..., pool.size()) long. Allocates nothing.
void gemm(const GemmArgs& args, std::byte* workspace, ThreadPool& pool);

// A W^T of a few rows and a weight that may lie in memory as bf16, which is read in place, once: computed as gemm()
// computes products of few rows (or any, with independent_rows) in fp32; args.b may be bf16, and the bits are those of
// a weight in fp32 with the same numbers. One product, without trans_a and with trans_b; all else is fp32.
void gemm_few_rows(const GemmArgs& args, ThreadPool& pool);

// Weights as products read them: panels of columns of op(B), packed once instead of in every product, in place of the
// weight. The order depends on the instruction set: products must run with the one that packed
// (engine/kernels/processor.h).
//
// Whether a product of [m, k] by a weight of [k, n] can read panels. Not with few rows, for which gemm() reads B in
// place and sums in another order. n must be whole panels of every instruction set (a multiple of 32), k even.
bool has_panels(int64_t m, int64_t n, int64_t k);
// The same for panels apart from the weight: n and k may be any.
bool reads_panels(int64_t m, int64_t n, int64_t k);
int64_t panel_floats(int64_t n, int64_t k);  // that such panels take

struct PanelsOf {
  int64_t n, k;
  bool trans_b;          // stored [n, k], otherwise [k, n]
  Precision precision;   // of the products; for kBf16 numbers are rounded, and panels take the first half of the memory
  bool in_bf16 = false;  // the weight lies in memory as bf16. Needs kBf16 and gemm_has_bf16().
  bool operator==(const PanelsOf&) const = default;
  size_t bytes() const { return static_cast<size_t>(n * k) * (in_bf16 ? sizeof(Bfloat16) : sizeof(float)); }
};

// Packs a weight in place. Takes memory of the same size meanwhile.
void pack_panels(const PanelsOf& weight, void* values, ThreadPool& pool);

// Packs a weight for fp32 products into 64-byte aligned memory of panel_floats().
void pack_panels_apart(const PanelsOf& weight, const float* values, float* panels, ThreadPool& pool);

// gemm() with 64-byte aligned panels as args.b, with the bits and workspace of the unpacked weight. One product,
// without trans_a and independent_rows, in the precision of the panels; args.trans_b and ldb are not read.
void gemm_panels(const GemmArgs& args, std::byte* workspace, ThreadPool& pool);
}  // namespace linnet
