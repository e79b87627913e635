// The ops of models that read and write texts, without gradients.
#include <array>

#include "engine/ops/argmax/argmax.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/cached_attention.h"
#include "engine/ops/cache/cache.h"
#include "engine/ops/distance_buckets/distance_buckets.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/fake_quantize/fake_quantize.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/literal/literal.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/op_lists.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/ops/quantized/round_bf16.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/residual_norm/residual_norm.h"
#include "engine/ops/rope/rope.h"
#include "engine/ops/softmax/softmax.h"

namespace linnet {

std::span<const OpEntry> inference_ops() {
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
      OpEntry{&kEmbedding, embedding_kernels()},
      OpEntry{&kDequantize, dequantize_kernels()},
      OpEntry{&kQuantizedEmbedding, quantized_embedding_kernels()},
      OpEntry{&kQuantizedMatmul, quantized_matmul_kernels()},
      OpEntry{&kRoundActivations, round_activations_kernels()},
      OpEntry{&kRoundBf16, round_bf16_kernels()},
      OpEntry{&kFakeQuantize, fake_quantize_kernels()},
      OpEntry{&kRoundWeight, round_weight_kernels()},
      OpEntry{&kLayerNorm, layer_norm_kernels()},
      OpEntry{&kResidualNorm, residual_norm_kernels()},
      OpEntry{&kSoftmax, softmax_kernels()},
      OpEntry{&kAttention, attention_kernels()},
      OpEntry{&kMaskScores, mask_scores_kernels()},
      OpEntry{&kRope, rope_kernels()},
      OpEntry{&kDistanceBuckets, distance_buckets_kernels()},
      OpEntry{&kArgmax, argmax_kernels()},
      OpEntry{&kCacheWrite, cache_write_kernels()},
      OpEntry{&kCachePut, cache_put_kernels()},
      OpEntry{&kCachedAttention, cached_attention_kernels()},
      OpEntry{&kCacheFill, cache_fill_kernels()},
      OpEntry{&kCacheReorder, cache_reorder_kernels()},
  };
  return ops;
}

}  // namespace linnet
