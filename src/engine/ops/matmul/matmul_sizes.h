// The sizes of a matmul node's product, for its kernels.
#pragma once
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

}  // namespace linnet
