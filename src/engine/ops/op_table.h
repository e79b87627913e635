// The table of all ops, with a row OP(its OpDef, its name, its kernels on a GPU) for each. NAME_kernels() are the
// CPU's; on a GPU there are NAME_cuda_kernels() (kOwn), those by NVIDIA's libraries, which the emulation lacks
// (kLibrary), or at most those that all_ops_cuda.cpp adds (kNone). A new op is a folder and a row.
#pragma once
#include <span>
#include "engine/ops/kernel.h"

namespace linnet {
// clang-format off
#define LINNET_OPS(OP) \
  OP(kPointwise, pointwise, kLibrary) \
  OP(kPointwiseSum, pointwise_sum, kNone) \
  OP(kReduce, reduce, kOwn) \
  OP(kMatmul, matmul, kLibrary) \
  OP(kGroupedMatmul, grouped_matmul, kNone) \
  OP(kReshape, reshape, kOwn) \
  OP(kStopGradient, stop_gradient, kOwn) \
  OP(kSplit, split, kOwn) \
  OP(kConcat, concat, kOwn) \
  OP(kPermute, permute, kOwn) \
  OP(kBroadcast, broadcast, kOwn) \
  OP(kFill, fill, kOwn) \
  OP(kLiteral, literal, kOwn) \
  OP(kCast, cast, kOwn) \
  OP(kEmbedding, embedding, kOwn) \
  OP(kDequantize, dequantize, kOwn) \
  OP(kQuantizedEmbedding, quantized_embedding, kOwn) \
  OP(kQuantizedMatmul, quantized_matmul, kOwn) \
  OP(kQuantizeWeight, quantize_weight, kNone) \
  OP(kRoundActivations, round_activations, kNone) \
  OP(kRoundBf16, round_bf16, kNone) \
  OP(kFakeQuantize, fake_quantize, kNone) \
  OP(kRoundWeight, round_weight, kNone) \
  OP(kLayerNorm, layer_norm, kOwn) \
  OP(kResidualNorm, residual_norm, kOwn) \
  OP(kSoftmax, softmax, kOwn) \
  OP(kAttention, attention, kOwn) \
  OP(kMaskScores, mask_scores, kOwn) \
  OP(kRope, rope, kOwn) \
  OP(kDistanceBuckets, distance_buckets, kOwn) \
  OP(kArgmax, argmax, kOwn) \
  OP(kCacheWrite, cache_write, kOwn) \
  OP(kCachePut, cache_put, kNone) \
  OP(kCachedAttention, cached_attention, kNone) \
  OP(kCacheFill, cache_fill, kOwn) \
  OP(kCacheReorder, cache_reorder, kOwn) \
  OP(kQuantizedConv2d, quantized_conv2d, kNone) \
  OP(kBatchNorm, batch_norm, kOwn) \
  OP(kScalePixels, scale_pixels, kOwn) \
  OP(kConv2d, conv2d, kOwn) \
  OP(kMaxPool, max_pool, kOwn) \
  OP(kConvReluPool, conv_relu_pool, kOwn) \
  OP(kAllReduce, all_reduce, kNone) \
  OP(kShare, share, kNone) \
  OP(kAllGather, all_gather, kNone) \
  OP(kHold, hold, kNone) \
  OP(kStageOutput, stage_output, kNone) \
  OP(kDropout, dropout, kOwn) \
  OP(kRandomUniform, random_uniform, kOwn) \
  OP(kCumsum, cumsum, kOwn) \
  OP(kArgsort, argsort, kOwn) \
  OP(kEmbeddingGrad, embedding_grad, kOwn) \
  OP(kGroupedMatmulGrad, grouped_matmul_grad, kNone) \
  OP(kWeightGradients, weight_gradients, kOwn) \
  OP(kFakeQuantizeGrad, fake_quantize_grad, kNone) \
  OP(kBatchNormGrad, batch_norm_grad, kOwn) \
  OP(kLayerNormGrad, layer_norm_grad, kOwn) \
  OP(kResidualNormGrad, residual_norm_grad, kOwn) \
  OP(kNormSums, norm_sums, kOwn) \
  OP(kSoftmaxGrad, softmax_grad, kOwn) \
  OP(kAttentionGrad, attention_grad, kOwn) \
  OP(kCrossEntropy, cross_entropy, kOwn) \
  OP(kCrossEntropyGrad, cross_entropy_grad, kOwn) \
  OP(kLinearCrossEntropy, linear_cross_entropy, kLibrary) \
  OP(kLinearCrossEntropyGrad, linear_cross_entropy_grad, kLibrary) \
  OP(kMaskTargets, mask_targets, kOwn) \
  OP(kCountTargets, count_targets, kOwn) \
  OP(kOneHot, one_hot, kOwn) \
  OP(kConv2dInputGrad, conv2d_input_grad, kOwn) \
  OP(kConv2dWeightGrad, conv2d_weight_grad, kOwn) \
  OP(kMaxPoolGrad, max_pool_grad, kOwn) \
  OP(kConvReluPoolWeightGrad, conv_relu_pool_weight_grad, kOwn) \
  OP(kConvReluPoolInputGrad, conv_relu_pool_input_grad, kOwn) \
  OP(kGatherRows, gather_rows, kOwn) \
  OP(kPickRows, pick_rows, kOwn) \
  OP(kWriteRow, write_row, kOwn) \
  OP(kSumOfSquares, sum_of_squares, kOwn) \
  OP(kOptimizerStep, optimizer_step, kOwn) \
  OP(kRoundHalf, round_half, kOwn) \
  OP(kUpdateFactors, update_factors, kOwn) \
  OP(kAdam8bitStep, adam_8bit_step, kOwn)
// clang-format on

std::span<const BackendOp> cuda_ops();  // in the module that is loaded for --device cuda

#define LINNET_OP_ENTRY(op, name, cuda) OpEntry{&op, name##_kernels()},
#define LINNET_OP_KERNELS(op, name, cuda) \
  extern const OpDef op;                  \
  KernelList name##_kernels();
}  // namespace linnet
