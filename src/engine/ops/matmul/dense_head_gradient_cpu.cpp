#include "engine/ops/matmul/dense_head.h"
#include "engine/ops/matmul/matmul.h"

namespace linnet {

void run_dense_head_gradient(const DenseHeadShape& shape, bool of_weight, const KernelArgs& args) {
  const auto *a = args.in[0].as<const float>(), *b = args.in[1].as<const float>();
  const auto gradient = of_weight ? dense_head_weight_gradient : dense_head_input_gradient;
  gradient(shape, a, b, args.node.attrs.as<MatmulAttrs>().accumulate, args.out[0].as<float>(), args.pool);
}

}  // namespace linnet
