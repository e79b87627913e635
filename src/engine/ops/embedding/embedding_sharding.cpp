#include "engine/ops/embedding/embedding.h"
#include "engine/ops/sharding_rules.h"

namespace linnet {

// Tables of few rows (positions, distances, token types) cost less to have than the sum that dividing them takes.
constexpr int64_t kFewRows = 512;

std::optional<ShardedNode> shard_embedding(const ShardArgs& args) {
  EmbeddingAttrs attrs = args.node.attrs.as<EmbeddingAttrs>();
  const Sharding& table = args.sharding[0];
  const Shape& shape = args.in[0].shape;
  if (table.is_cut() && table.axis == 1)
    return ShardedNode{.attrs = attrs,
                       .in = {table, Sharding::whole()},
                       .out = {Sharding::cut(args.out[0].shape.rank() - 1, table.parts)}};
  const bool divides = table.kind == Sharding::Kind::kFree && shape[0] > kFewRows && shape[0] >= args.rank.ranks;
  if (!(table.is_cut() && table.parts.size() == 1) && !divides) return {};
  attrs.all_rows = shape[0];
  attrs.first_row = part_of_axis(shape[0], args.rank).first;
  return ShardedNode{.attrs = attrs, .in = {Sharding::cut(0, {shape[0]}), Sharding::whole()}, .out = {Sharding::sum()}};
}

}  // namespace linnet
