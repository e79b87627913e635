#include "engine/ops/matmul/matmul.h"
#include "engine/ops/sharding_rules.h"

namespace linnet {

std::optional<ShardedNode> shard_matmul(const ShardArgs& args) {
  const auto& attrs = args.node.attrs.as<MatmulAttrs>();
  const Sharding &a = args.sharding[0], &b = args.sharding[1];
  const Shape& weight = args.in[1].shape;
  if (args.in.size() != 2 || weight.rank() != 2 || attrs.trans_a) return {};
  const int last = args.in[0].shape.rank() - 1, inner = attrs.trans_b ? 1 : 0, outer = 1 - inner;
  const auto by_columns = [&](const std::vector<int64_t>& parts) {
    return ShardedNode{.attrs = args.node.attrs,
                       .in = {Sharding::whole(), Sharding::cut(outer, parts)},
                       .out = {Sharding::cut(last, parts)}};
  };
  const auto by_rows = [&](const std::vector<int64_t>& parts) {
    return ShardedNode{.attrs = args.node.attrs,
                       .in = {Sharding::cut(last, parts), Sharding::cut(inner, parts)},
                       .out = {Sharding::sum()}};
  };
  if (a.is_cut()) return a.axis == last ? std::optional(by_rows(a.parts)) : std::nullopt;
  if (b.is_cut()) return b.axis == outer ? by_columns(b.parts) : by_rows(b.parts);
  if (b.kind != Sharding::Kind::kFree || weight[outer] < args.rank.ranks) return {};
  return by_columns(args.parts_or(weight[outer]));
}

}  // namespace linnet
