// The CUDA kernels of every op: what engine/ops/all_ops.cpp lists for the CPU, in the module that is loaded for --device cuda.
// Each is in its op's folder, in x_cuda.cu. In the emulation (LINNET_CUDA_EMULATION) the same list, without what
// NVIDIA's libraries do.
#pragma once
#include "engine/ops/kernel.h"

namespace linnet {

std::span<const BackendOp> cuda_ops();

KernelList pointwise_cuda_kernels();  // not in the emulation
KernelList reshape_cuda_kernels();
KernelList split_cuda_kernels();
KernelList concat_cuda_kernels();
KernelList permute_cuda_kernels();
KernelList broadcast_cuda_kernels();
KernelList fill_cuda_kernels();
KernelList literal_cuda_kernels();
KernelList cast_cuda_kernels();
KernelList reduce_cuda_kernels();
KernelList dropout_cuda_kernels();
KernelList random_uniform_cuda_kernels();
KernelList cumsum_cuda_kernels();
KernelList rope_cuda_kernels();
KernelList distance_buckets_cuda_kernels();
KernelList mask_scores_cuda_kernels();
KernelList one_hot_cuda_kernels();
KernelList mask_targets_cuda_kernels();
KernelList count_targets_cuda_kernels();
KernelList argmax_cuda_kernels();
KernelList scale_pixels_cuda_kernels();
KernelList cache_write_cuda_kernels();
KernelList cache_fill_cuda_kernels();
KernelList cache_reorder_cuda_kernels();
KernelList gather_rows_cuda_kernels();
KernelList pick_rows_cuda_kernels();
KernelList write_row_cuda_kernels();
KernelList embedding_cuda_kernels();
KernelList embedding_grad_cuda_kernels();
KernelList max_pool_cuda_kernels();
KernelList max_pool_grad_cuda_kernels();

KernelList batch_norm_cuda_kernels();
KernelList batch_norm_grad_cuda_kernels();
KernelList layer_norm_cuda_kernels();
KernelList layer_norm_grad_cuda_kernels();
KernelList residual_norm_cuda_kernels();
KernelList residual_norm_grad_cuda_kernels();
KernelList softmax_cuda_kernels();
KernelList softmax_grad_cuda_kernels();
KernelList cross_entropy_cuda_kernels();
KernelList cross_entropy_grad_cuda_kernels();
KernelList sum_of_squares_cuda_kernels();
KernelList optimizer_step_cuda_kernels();
KernelList round_half_cuda_kernels();
KernelList update_factors_cuda_kernels();
KernelList adam_8bit_step_cuda_kernels();
KernelList conv2d_cuda_kernels();
KernelList conv2d_input_grad_cuda_kernels();
KernelList conv2d_weight_grad_cuda_kernels();
KernelList conv2d_groups_cuda_kernels();
KernelList conv2d_groups_input_grad_cuda_kernels();
KernelList conv2d_groups_weight_grad_cuda_kernels();
KernelList conv_relu_pool_cuda_kernels();
KernelList conv_relu_pool_weight_grad_cuda_kernels();
KernelList conv_relu_pool_input_grad_cuda_kernels();

KernelList attention_cuda_kernels();
KernelList attention_grad_cuda_kernels();
// By NVIDIA's libraries: not in the emulation.
KernelList matmul_cuda_kernels();
KernelList linear_cross_entropy_cuda_kernels();
KernelList linear_cross_entropy_grad_cuda_kernels();
KernelList attention_cudnn_kernels();
KernelList attention_grad_cudnn_kernels();
KernelList conv2d_cudnn_kernels();
KernelList conv2d_input_grad_cudnn_kernels();
KernelList conv2d_weight_grad_cudnn_kernels();

}  // namespace linnet
