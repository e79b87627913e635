// The sharding rules of all ops that have one (engine/ops/sharding.h), which engine/ops/sharding.cpp lists.
#pragma once
#include "engine/ops/sharding.h"

namespace linnet {

// A linear layer whose weight's outputs are divided gives a result whose last axis is (column-parallel); one whose
// input is divided gives summands (row-parallel).
std::optional<ShardedNode> shard_matmul(const ShardArgs& args);
// Every operand is divided along the same axis of the result as the others; one that is repeated along it is whole.
std::optional<ShardedNode> shard_pointwise(const ShardArgs& args);
// The masks are those of the whole tensor.
std::optional<ShardedNode> shard_dropout(const ShardArgs& args);
// By heads. User error where heads cannot be divided evenly.
std::optional<ShardedNode> shard_attention(const ShardArgs& args);
std::optional<ShardedNode> shard_rope(const ShardArgs& args);
// Along the divided axis: the pieces are the parts of the operand.
std::optional<ShardedNode> shard_split(const ShardArgs& args);
std::optional<ShardedNode> shard_reshape(const ShardArgs& args);
std::optional<ShardedNode> shard_permute(const ShardArgs& args);
// By rows of the table, if it has many: a rank gives zeros for the others' rows.
std::optional<ShardedNode> shard_embedding(const ShardArgs& args);
// By classes.
std::optional<ShardedNode> shard_linear_cross_entropy(const ShardArgs& args);

}  // namespace linnet
