// Matrix products of cuBLASLt: row-major operands, fused epilogues where cuBLASLt has them, and the fastest
// deterministic algorithm of its heuristics, timed at the first run of a problem (engine/device/disk_cache.h).
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include "base/functions.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ir/tensor_type.h"

namespace linnet {
// d = after(alpha * op(a) op(b) + beta * c + bias), row-major, for each of `batch`: op(a) [m, k], op(b) [k, n], c and d
// [m, n]. a is stored [k, m] with trans_a, b [n, k] with trans_b.
struct LtProduct {
  enum class After { kNothing, kRelu, kGeluTanh, kGeluTanhSlope };  // kGeluTanhSlope: times gelu'(aux)
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  int64_t lda = 0, ldb = 0, ldc = 0;                  // elements between rows of what is stored; d lies like c
  int64_t a_batch = 0, b_batch = 0, c_batch = 0;      // elements between products
  DType operand = DType::kF32, result = DType::kF32;  // a and b; c and d
  bool tf32 = false, bf16 = false;                    // what fp32 operands are rounded to on their way into the product
  float alpha = 1, beta = 0;
  After after = After::kNothing;
  bool bias = false;  // [n]
  DType bias_type = DType::kF32;
  bool row_sums = false;  // op(a) summed over k is written as well: [m], fp32; not beside a bias
  bool aux = false;       // kGeluTanh: what it is taken of is written there; kGeluTanhSlope: is read there. Like d
  // The addresses' alignment, at most 16; lt_run determines it.
  int a_alignment = 16, b_alignment = 16, c_alignment = 16, bias_alignment = 16;  // the last one of row_sums too
  bool rounds() const { return operand == DType::kF32 && (tf32 || bf16); }
  std::string text() const;  // a key
};

struct LtOperands {
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  void* aux = nullptr;
  float* row_sums = nullptr;
  std::byte* workspace = nullptr;  // kLtWorkspace bytes, a multiple of 256
};

constexpr size_t kLtWorkspace = size_t{32} << 20;

// The common alignment of the addresses, at most 16; null ones do not count.
int lt_alignment(std::initializer_list<const void*> addresses);
// Whether cuBLASLt has an algorithm. Allowed inside a recording.
bool lt_supports(CudaDevice& device, const LtProduct& product);
// Queues it. The first time, which must not be inside a recording, algorithms are timed: d, aux and row_sums are
// written several times; if d is c's memory, a copy of it is used.
void lt_run(CudaDevice& device, const LtProduct& product, const LtOperands& operands);
// The same, or false, with nothing queued, if cuBLASLt refuses the product that its heuristics proposed.
[[nodiscard]] bool lt_try(CudaDevice& device, const LtProduct& product, const LtOperands& operands);
// Queues a product without row_sums, and operands.row_sums: by cuBLASLt on the way, if it can and was faster the first
// time than the product followed by sum_apart(), which queues the sums alone.
void lt_run_with_sums(
    CudaDevice& device, const LtProduct& product, const LtOperands& operands, FunctionRef<void()> sum_apart);
}  // namespace linnet
