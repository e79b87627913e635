#include "engine/ops/sharding.h"

#include "engine/ops/attention/attention.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/rope/rope.h"
#include "engine/ops/sharding_rules.h"

namespace linnet {

AxisPart part_of_axis(int64_t size, const TensorRank& rank) {
  const int64_t first = size * rank.rank / rank.ranks;
  return {first, size * (rank.rank + 1) / rank.ranks - first};
}

Shape local_shape(const Shape& whole, const Sharding& sharding, const TensorRank& rank) {
  if (!sharding.is_cut()) return whole;
  Shape local = whole;
  int64_t size = 0;
  for (const int64_t part : sharding.parts) size += part_of_axis(part, rank).count;
  local.set(sharding.axis, size);
  return local;
}

void for_runs(const Shape& whole, const Sharding& sharding, const TensorRank& rank,
              FunctionRef<void(int64_t in_whole, int64_t in_part, int64_t count)> visit) {
  if (!sharding.is_cut()) return visit(0, 0, whole.elements());
  const int64_t outer = whole.elements(0, sharding.axis), inner = whole.elements(sharding.axis + 1, whole.rank());
  int64_t in_part = 0;
  for (int64_t i = 0; i < outer; ++i) {
    int64_t row = i * whole[sharding.axis];
    for (const int64_t part : sharding.parts) {
      const AxisPart own = part_of_axis(part, rank);
      visit((row + own.first) * inner, in_part, own.count * inner);
      in_part += own.count * inner;
      row += part;
    }
  }
}

ShardRule shard_rule(const OpDef& op) {
  static const std::pair<const OpDef*, ShardRule> rules[] = {
      {&kMatmul, shard_matmul},       {&kPointwise, shard_pointwise},
      {&kDropout, shard_dropout},     {&kAttention, shard_attention},
      {&kRope, shard_rope},           {&kSplit, shard_split},
      {&kReshape, shard_reshape},     {&kPermute, shard_permute},
      {&kEmbedding, shard_embedding}, {&kLinearCrossEntropy, shard_linear_cross_entropy}};
  for (const auto& [of, rule] : rules)
    if (of == &op) return rule;
  return nullptr;
}

}  // namespace linnet
