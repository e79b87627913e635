#include <array>

#include "engine/ops/cuda_kernels.h"

namespace linnet {

std::span<const BackendOp> cuda_ops() {
  static const std::array ops{
#ifndef LINNET_CUDA_EMULATION
      BackendOp{"pointwise", pointwise_cuda_kernels()},
#endif
      BackendOp{"reshape", reshape_cuda_kernels()},
      BackendOp{"stop_gradient", reshape_cuda_kernels()},
      BackendOp{"split", split_cuda_kernels()},
      BackendOp{"concat", concat_cuda_kernels()},
      BackendOp{"permute", permute_cuda_kernels()},
      BackendOp{"broadcast", broadcast_cuda_kernels()},
      BackendOp{"fill", fill_cuda_kernels()},
      BackendOp{"literal", literal_cuda_kernels()},
      BackendOp{"cast", cast_cuda_kernels()},
      BackendOp{"reduce", reduce_cuda_kernels()},
      BackendOp{"dropout", dropout_cuda_kernels()},
      BackendOp{"random_uniform", random_uniform_cuda_kernels()},
      BackendOp{"cumsum", cumsum_cuda_kernels()},
      BackendOp{"rope", rope_cuda_kernels()},
      BackendOp{"distance_buckets", distance_buckets_cuda_kernels()},
      BackendOp{"mask_scores", mask_scores_cuda_kernels()},
      BackendOp{"one_hot", one_hot_cuda_kernels()},
      BackendOp{"mask_targets", mask_targets_cuda_kernels()},
      BackendOp{"count_targets", count_targets_cuda_kernels()},
      BackendOp{"argmax", argmax_cuda_kernels()},
      BackendOp{"scale_pixels", scale_pixels_cuda_kernels()},
      BackendOp{"cache_write", cache_write_cuda_kernels()},
      BackendOp{"cache_fill", cache_fill_cuda_kernels()},
      BackendOp{"cache_reorder", cache_reorder_cuda_kernels()},
      BackendOp{"gather_rows", gather_rows_cuda_kernels()},
      BackendOp{"pick_rows", pick_rows_cuda_kernels()},
      BackendOp{"write_row", write_row_cuda_kernels()},
      BackendOp{"embedding", embedding_cuda_kernels()},
      BackendOp{"embedding_grad", embedding_grad_cuda_kernels()},
      BackendOp{"max_pool", max_pool_cuda_kernels()},
      BackendOp{"max_pool_grad", max_pool_grad_cuda_kernels()},

      BackendOp{"batch_norm", batch_norm_cuda_kernels()},
      BackendOp{"batch_norm_grad", batch_norm_grad_cuda_kernels()},
      BackendOp{"layer_norm", layer_norm_cuda_kernels()},
      BackendOp{"layer_norm_grad", layer_norm_grad_cuda_kernels()},
      BackendOp{"residual_norm", residual_norm_cuda_kernels()},
      BackendOp{"residual_norm_grad", residual_norm_grad_cuda_kernels()},
      BackendOp{"softmax", softmax_cuda_kernels()},
      BackendOp{"softmax_grad", softmax_grad_cuda_kernels()},
      BackendOp{"cross_entropy", cross_entropy_cuda_kernels()},
      BackendOp{"cross_entropy_grad", cross_entropy_grad_cuda_kernels()},
      BackendOp{"sum_of_squares", sum_of_squares_cuda_kernels()},
      BackendOp{"optimizer_step", optimizer_step_cuda_kernels()},
      BackendOp{"round_half", round_half_cuda_kernels()},
      BackendOp{"update_factors", update_factors_cuda_kernels()},
      BackendOp{"adam_8bit_step", adam_8bit_step_cuda_kernels()},
      BackendOp{"conv_relu_pool", conv_relu_pool_cuda_kernels()},
      BackendOp{"conv_relu_pool_weight_grad", conv_relu_pool_weight_grad_cuda_kernels()},
      BackendOp{"conv_relu_pool_input_grad", conv_relu_pool_input_grad_cuda_kernels()},

#ifndef LINNET_CUDA_EMULATION
      BackendOp{"attention", attention_cudnn_kernels()},
      BackendOp{"attention_grad", attention_grad_cudnn_kernels()},
      BackendOp{"conv2d", conv2d_cudnn_kernels()},
      BackendOp{"conv2d_input_grad", conv2d_input_grad_cudnn_kernels()},
      BackendOp{"conv2d_weight_grad", conv2d_weight_grad_cudnn_kernels()},
      BackendOp{"matmul", matmul_cuda_kernels()},
      BackendOp{"linear_cross_entropy", linear_cross_entropy_cuda_kernels()},
      BackendOp{"linear_cross_entropy_grad", linear_cross_entropy_grad_cuda_kernels()},
#endif
      BackendOp{"attention", attention_cuda_kernels()},
      BackendOp{"attention_grad", attention_grad_cuda_kernels()},
      BackendOp{"conv2d", conv2d_cuda_kernels()},
      BackendOp{"conv2d_input_grad", conv2d_input_grad_cuda_kernels()},
      BackendOp{"conv2d_weight_grad", conv2d_weight_grad_cuda_kernels()},
      BackendOp{"conv2d", conv2d_groups_cuda_kernels()},
      BackendOp{"conv2d_input_grad", conv2d_groups_input_grad_cuda_kernels()},
      BackendOp{"conv2d_weight_grad", conv2d_groups_weight_grad_cuda_kernels()},
  };
  return ops;
}

}  // namespace linnet
