#include "engine/ops/dropout/dropout.h"
#include "engine/ops/sharding_rules.h"

namespace linnet {

std::optional<ShardedNode> shard_dropout(const ShardArgs& args) {
  DropoutAttrs attrs = args.node.attrs.as<DropoutAttrs>();
  const Sharding& x = args.sharding[0];
  const Shape& shape = args.in[0].shape;
  if (!x.is_cut() || attrs.layout != DropoutLayout::kDense || !attrs.is_whole()) return {};
  if (shape.rank() < 2 || x.axis != shape.rank() - 1 || x.parts.size() != 1) return {};
  // Random numbers are drawn for eight elements at a time.
  for (int rank = 0; rank <= args.rank.ranks; ++rank)
    if (shape[-1] * rank / args.rank.ranks % 8 != 0) return {};
  attrs.all_columns = shape[-1];
  attrs.first_column = part_of_axis(shape[-1], args.rank).first;
  return ShardedNode{.attrs = attrs, .in = {x, Sharding::whole()}, .out = {x}};
}

}  // namespace linnet
