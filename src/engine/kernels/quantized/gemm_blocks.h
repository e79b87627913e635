// Products with weights in blocks of 32 (WeightFormat::kInt8Blocks, kInt4Blocks); see gemm_int8.h.
#pragma once
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/quantized/packed_weight.h"

namespace linnet {

size_t gemm_blocks_workspace(const PackedShape& shape, int64_t m, bool few, int threads);
void gemm_blocks(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool);

}  // namespace linnet
