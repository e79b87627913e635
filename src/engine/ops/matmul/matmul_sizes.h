// The sizes of a matmul node's product, for its kernels.
#pragma once
#include <optional>
#include "engine/kernels/gemm/panels.h"
#include "engine/ops/kernel.h"
#include "engine/ops/matmul/matmul.h"

namespace linnet {

// `batch` independent products [m, k] x [k, n].
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

// How a matmul runs whose second operand, a weight, lies in memory as panels (engine/kernels/gemm/panels.h). Operands,
// attributes and the result's bits are those of the matmul. find_kernel() never chooses this kernel: it is for whoever
// packs the weight (engine/plan/packed_weights.h).

// The panels that the kernel would read for this node; nothing if the node is no matmul that can read any. Never for
// products of few rows.
std::optional<PanelsOf> panels_of(const KernelQuery& query);

// Its workspace is that of the matmul's kernel "gemm".
extern const Kernel kPanelMatmul;

}  // namespace linnet
