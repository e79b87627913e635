// How a matmul runs whose second operand, a weight, lies in memory as panels (engine/kernels/gemm/panels.h). Operands,
// attributes and the result's bits are those of the matmul. find_kernel() never chooses this kernel: it is for whoever
// packs the weight (engine/plan/packed_weights.h).
#pragma once
#include <optional>

#include "engine/kernels/gemm/panels.h"
#include "engine/ops/kernel.h"

namespace linnet {

// The panels that the kernel would read for this node; nothing if the node is no matmul that can read any. Never for
// products of few rows.
std::optional<PanelsOf> panels_of(const KernelQuery& query);

// Its workspace is that of the matmul's kernel "gemm".
extern const Kernel kPanelMatmul;

}  // namespace linnet
