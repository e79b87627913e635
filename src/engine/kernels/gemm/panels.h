// Weights as products read them: panels of columns of op(B), packed once instead of in every product, in place of the
// weight. The order depends on the instruction set: products must run with the one that packed (engine/kernels/isa.h).
#pragma once
#include "engine/kernels/gemm/gemm.h"

namespace linnet {
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
