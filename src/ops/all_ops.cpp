// The one list of all ops: a new op is a folder and a row here. Those that programs define are in ops/own.
#include <array>
#include <cstring>
#include <vector>

#include "ops/argmax/argmax.h"
#include "ops/attention/attention.h"
#include "ops/attention/cached_attention.h"
#include "ops/batch_norm/batch_norm.h"
#include "ops/cache/cache.h"
#include "ops/collective/collective.h"
#include "ops/conv2d/conv2d.h"
#include "ops/conv_pool/conv_pool.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/distance_buckets/distance_buckets.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/fake_quantize/fake_quantize.h"
#include "ops/kernel.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/literal/literal.h"
#include "ops/matmul/matmul.h"
#include "ops/max_pool/max_pool.h"
#include "ops/movement/movement.h"
#include "ops/optimizer/adam_8bit.h"
#include "ops/optimizer/optimizer.h"
#include "ops/own/own.h"
#include "ops/pixels/pixels.h"
#include "ops/pointwise/pointwise.h"
#include "ops/quantized/quantized.h"
#include "ops/quantized/quantized_conv2d.h"
#include "ops/quantized/round_bf16.h"
#include "ops/reduce/reduce.h"
#include "ops/resident/resident.h"
#include "ops/residual_norm/residual_norm.h"
#include "ops/rope/rope.h"
#include "ops/round_half/round_half.h"
#include "ops/softmax/softmax.h"

namespace linnet {

std::span<const OpEntry> all_ops() {
  static const std::array ops{
      OpEntry{&kPointwise, pointwise_kernels()},
      OpEntry{&kReduce, reduce_kernels()},
      OpEntry{&kMatmul, matmul_kernels()},

      OpEntry{&kReshape, reshape_kernels()},
      OpEntry{&kStopGradient, reshape_kernels()},
      OpEntry{&kSplit, split_kernels()},
      OpEntry{&kConcat, concat_kernels()},
      OpEntry{&kPermute, permute_kernels()},
      OpEntry{&kBroadcast, broadcast_kernels()},
      OpEntry{&kFill, fill_kernels()},
      OpEntry{&kLiteral, literal_kernels()},
      OpEntry{&kCast, cast_kernels()},

      OpEntry{&kAllReduce, all_reduce_kernels()},
      OpEntry{&kShare, share_kernels()},
      OpEntry{&kAllGather, all_gather_kernels()},

      OpEntry{&kEmbedding, embedding_kernels()},
      OpEntry{&kEmbeddingGrad, embedding_grad_kernels()},
      OpEntry{&kDequantize, dequantize_kernels()},
      OpEntry{&kQuantizedEmbedding, quantized_embedding_kernels()},
      OpEntry{&kQuantizedMatmul, quantized_matmul_kernels()},
      OpEntry{&kQuantizedConv2d, quantized_conv2d_kernels()},
      OpEntry{&kRoundActivations, round_activations_kernels()},
      OpEntry{&kRoundBf16, round_bf16_kernels()},
      OpEntry{&kFakeQuantize, fake_quantize_kernels()},
      OpEntry{&kFakeQuantizeGrad, fake_quantize_grad_kernels()},
      OpEntry{&kRoundWeight, round_weight_kernels()},

      OpEntry{&kBatchNorm, batch_norm_kernels()},
      OpEntry{&kBatchNormGrad, batch_norm_grad_kernels()},
      OpEntry{&kLayerNorm, layer_norm_kernels()},
      OpEntry{&kLayerNormGrad, layer_norm_grad_kernels()},
      OpEntry{&kResidualNorm, residual_norm_kernels()},
      OpEntry{&kResidualNormGrad, residual_norm_grad_kernels()},
      OpEntry{&kSoftmax, softmax_kernels()},
      OpEntry{&kSoftmaxGrad, softmax_grad_kernels()},
      OpEntry{&kAttention, attention_kernels()},
      OpEntry{&kAttentionGrad, attention_grad_kernels()},
      OpEntry{&kMaskScores, mask_scores_kernels()},
      OpEntry{&kRope, rope_kernels()},
      OpEntry{&kDistanceBuckets, distance_buckets_kernels()},
      OpEntry{&kDropout, dropout_kernels()},
      OpEntry{&kCrossEntropy, cross_entropy_kernels()},
      OpEntry{&kCrossEntropyGrad, cross_entropy_grad_kernels()},
      OpEntry{&kLinearCrossEntropy, linear_cross_entropy_kernels()},
      OpEntry{&kLinearCrossEntropyGrad, linear_cross_entropy_grad_kernels()},
      OpEntry{&kMaskTargets, mask_targets_kernels()},
      OpEntry{&kCountTargets, count_targets_kernels()},
      OpEntry{&kOneHot, one_hot_kernels()},

      OpEntry{&kScalePixels, scale_pixels_kernels()},
      OpEntry{&kConv2d, conv2d_kernels()},
      OpEntry{&kConv2dInputGrad, conv2d_input_grad_kernels()},
      OpEntry{&kConv2dWeightGrad, conv2d_weight_grad_kernels()},
      OpEntry{&kMaxPool, max_pool_kernels()},
      OpEntry{&kMaxPoolGrad, max_pool_grad_kernels()},
      OpEntry{&kConvReluPool, conv_relu_pool_kernels()},
      OpEntry{&kConvReluPoolWeightGrad, conv_relu_pool_weight_grad_kernels()},
      OpEntry{&kConvReluPoolInputGrad, conv_relu_pool_input_grad_kernels()},
      OpEntry{&kArgmax, argmax_kernels()},

      OpEntry{&kCacheWrite, cache_write_kernels()},
      OpEntry{&kCachePut, cache_put_kernels()},
      OpEntry{&kCachedAttention, cached_attention_kernels()},
      OpEntry{&kCacheFill, cache_fill_kernels()},
      OpEntry{&kCacheReorder, cache_reorder_kernels()},

      OpEntry{&kGatherRows, gather_rows_kernels()},
      OpEntry{&kPickRow, pick_row_kernels()},
      OpEntry{&kWriteRow, write_row_kernels()},

      OpEntry{&kSumOfSquares, sum_of_squares_kernels()},
      OpEntry{&kOptimizerStep, optimizer_step_kernels()},
      OpEntry{&kRoundHalf, round_half_kernels()},
      OpEntry{&kUpdateFactors, update_factors_kernels()},
      OpEntry{&kAdam8bitStep, adam_8bit_step_kernels()},
  };
  return ops;
}

namespace {

// The first of the list that supports the node.
const Kernel* choose(KernelList kernels, const KernelQuery& query) {
  for (const Kernel& kernel : kernels)
    if (!kernel.supports || kernel.supports(query)) return &kernel;
  return nullptr;
}

// Ops of programs have kernels for the CPU alone, whose backend has references.
KernelList kernels_of_own_op(const Backend& backend) {
  return backend.has_references ? own_op_kernels() : KernelList{};
}

KernelList kernels_of(const Backend& backend, const char* op) {
  for (const BackendOp& entry : backend.ops)
    if (std::strcmp(entry.op, op) == 0) return entry.kernels;
  return {};
}

// A backend may list an op twice: its own kernels, then those of a library.
const Kernel* find_fast_kernel(const KernelQuery& query, const Backend& backend) {
  if (is_own_op(*query.node.op)) {
    const KernelList kernels = kernels_of_own_op(backend);
    return kernels.empty() ? nullptr : choose(kernels.first(kernels.size() - 1), query);
  }
  for (const BackendOp& entry : backend.ops) {
    if (std::strcmp(entry.op, query.node.op->name) != 0) continue;
    const size_t count = entry.kernels.size() - (backend.has_references ? 1 : 0);
    if (const Kernel* kernel = choose(entry.kernels.first(count), query)) return kernel;
  }
  return nullptr;
}

[[noreturn]] void fail_no_kernel(const KernelQuery& query, const Backend& backend) {
  std::string types;
  for (const TensorType& type : query.in) types += (types.empty() ? "" : ", ") + type.text();
  fail_user(backend.device->info().name + " has no kernel for " + query.node.op->name + "(" + types + ") {" +
            query.node.attrs.text() + "}");
}

}  // namespace

const Backend& cpu_backend() {
  static const std::vector<BackendOp> ops = [] {
    std::vector<BackendOp> list;
    for (const OpEntry& entry : all_ops()) list.push_back({entry.op->name, entry.kernels});
    return list;
  }();
  static const Backend backend{&cpu_device(), ops, /*has_references=*/true};
  return backend;
}

const Kernel& find_kernel(const KernelQuery& query, KernelSet set, const Backend& backend) {
  if (set == KernelSet::kFast)
    if (const Kernel* kernel = find_fast_kernel(query, backend)) return *kernel;
  const OpDef& op = *query.node.op;
  const KernelList kernels = is_own_op(op) ? kernels_of_own_op(backend) : kernels_of(backend, op.name);
  if (!backend.has_references || kernels.empty()) fail_no_kernel(query, backend);
  return kernels.back();
}

const Kernel* find_named_kernel(const KernelQuery& query, std::string_view name, const Backend& backend) {
  if (is_own_op(*query.node.op))
    for (const Kernel& kernel : kernels_of_own_op(backend))
      if (name == kernel.name && (!kernel.supports || kernel.supports(query))) return &kernel;
  for (const BackendOp& entry : backend.ops)
    if (std::strcmp(entry.op, query.node.op->name) == 0)
      for (const Kernel& kernel : entry.kernels)
        if (name == kernel.name && (!kernel.supports || kernel.supports(query))) return &kernel;
  return nullptr;
}

bool has_fast_kernel(const KernelQuery& query, const Backend& backend) {
  return find_fast_kernel(query, backend) != nullptr;
}

const OpDef* find_op(std::string_view name) {
  for (const OpEntry& entry : all_ops())
    if (name == entry.op->name) return entry.op;
  return find_own_op(name);
}

}  // namespace linnet
