// The two kinds of products with weights in blocks or in bf16; see gemm_int8.h.
#pragma once
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/quantized/packed_weight.h"

namespace linnet {
// By integers if there are few rows, otherwise as gemm_strips().
size_t gemm_blocks_workspace(const PackedShape& shape, int64_t m, bool few, int threads);
void gemm_blocks(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool);

// Products with a packed weight W [rows, columns]. In fp32 the product unpacks codes as it packs its panels
// (GemmArgs::b_codes); otherwise W is unpacked strip by strip (some rows, 4 MB of fp32; 128 KB by each thread if A has
// few rows, as in decoding):
//
//   args.trans_b:  C [m, rows] = A [m, columns] W^T         otherwise:  C [m, columns] = A [m, rows] W
//
// with everything that may follow a product (GemmArgs). The second adds up the products of its strips in C. Sizes n and
// k and the operand b of `args` are not read: they are the weight's. One product: args.batch is 1.
size_t gemm_strips_workspace(const PackedShape& shape, int64_t m, int threads);  // bytes, for m rows
void gemm_strips(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool);

GemmArgs from_column(GemmArgs args, int64_t begin);
}  // namespace linnet
