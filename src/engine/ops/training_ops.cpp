// Gradients, losses, dropout, optimizers, and what training steps without the host need.
#include <array>

#include "engine/ops/attention/attention.h"
#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/collective/collective.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/conv_pool/conv_pool.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/cumsum/cumsum.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/fake_quantize/fake_quantize.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/max_pool/max_pool.h"
#include "engine/ops/op_lists.h"
#include "engine/ops/optimizer/adam_8bit.h"
#include "engine/ops/optimizer/optimizer.h"
#include "engine/ops/random_uniform/random_uniform.h"
#include "engine/ops/resident/resident.h"
#include "engine/ops/residual_norm/residual_norm.h"
#include "engine/ops/round_half/round_half.h"
#include "engine/ops/softmax/softmax.h"
#include "engine/ops/stage_output/stage_output.h"

namespace linnet {

std::span<const OpEntry> training_ops() {
  static const std::array ops{
      OpEntry{&kAllReduce, all_reduce_kernels()},
      OpEntry{&kShare, share_kernels()},
      OpEntry{&kAllGather, all_gather_kernels()},
      OpEntry{&kHold, hold_kernels()},
      OpEntry{&kStageOutput, stage_output_kernels()},
      OpEntry{&kDropout, dropout_kernels()},
      OpEntry{&kRandomUniform, random_uniform_kernels()},
      OpEntry{&kCumsum, cumsum_kernels()},
      OpEntry{&kEmbeddingGrad, embedding_grad_kernels()},
      OpEntry{&kFakeQuantizeGrad, fake_quantize_grad_kernels()},
      OpEntry{&kBatchNormGrad, batch_norm_grad_kernels()},
      OpEntry{&kLayerNormGrad, layer_norm_grad_kernels()},
      OpEntry{&kResidualNormGrad, residual_norm_grad_kernels()},
      OpEntry{&kSoftmaxGrad, softmax_grad_kernels()},
      OpEntry{&kAttentionGrad, attention_grad_kernels()},
      OpEntry{&kCrossEntropy, cross_entropy_kernels()},
      OpEntry{&kCrossEntropyGrad, cross_entropy_grad_kernels()},
      OpEntry{&kLinearCrossEntropy, linear_cross_entropy_kernels()},
      OpEntry{&kLinearCrossEntropyGrad, linear_cross_entropy_grad_kernels()},
      OpEntry{&kMaskTargets, mask_targets_kernels()},
      OpEntry{&kCountTargets, count_targets_kernels()},
      OpEntry{&kOneHot, one_hot_kernels()},
      OpEntry{&kConv2dInputGrad, conv2d_input_grad_kernels()},
      OpEntry{&kConv2dWeightGrad, conv2d_weight_grad_kernels()},
      OpEntry{&kMaxPoolGrad, max_pool_grad_kernels()},
      OpEntry{&kConvReluPoolWeightGrad, conv_relu_pool_weight_grad_kernels()},
      OpEntry{&kConvReluPoolInputGrad, conv_relu_pool_input_grad_kernels()},
      OpEntry{&kGatherRows, gather_rows_kernels()},
      OpEntry{&kPickRows, pick_rows_kernels()},
      OpEntry{&kWriteRow, write_row_kernels()},
      OpEntry{&kSumOfSquares, sum_of_squares_kernels()},
      OpEntry{&kOptimizerStep, optimizer_step_kernels()},
      OpEntry{&kRoundHalf, round_half_kernels()},
      OpEntry{&kUpdateFactors, update_factors_kernels()},
      OpEntry{&kAdam8bitStep, adam_8bit_step_kernels()},
  };
  return ops;
}

}  // namespace linnet
