#include "base/error.h"
#include "engine/ops/rope/rope.h"
#include "engine/ops/sharding_rules.h"

namespace linnet {

std::optional<ShardedNode> shard_rope(const ShardArgs& args) {
  RopeAttrs attrs = args.node.attrs.as<RopeAttrs>();
  const Sharding& x = args.sharding[0];
  const int64_t turned = attrs.heads * attrs.head_size, width = args.in[0].shape[2];
  if (!x.is_cut() || x.axis != 2) return {};
  ShardedNode node{.attrs = {}, .in = {x}, .out = {x}};
  node.in.resize(args.in.size());
  // The heads that are turned come first on every rank, so they are parts of their own.
  int64_t before = 0, heads = 0;
  for (size_t i = 0; i < x.parts.size() && before < turned; ++i) {
    if (x.parts[i] % (attrs.head_size * args.rank.ranks) != 0)
      fail_user("heads = " + std::to_string(attrs.heads) + " of queries and keys together cannot be divided between " +
                std::to_string(args.rank.ranks) +
                " tensor ranks: choose a number of them that divides heads and key-value heads");
    before += x.parts[i];
    heads += x.parts[i] / attrs.head_size / args.rank.ranks;
  }
  if (before != turned) {
    node.in[0].parts = {turned, width - turned};
    return node;
  }
  attrs.heads = heads;
  node.attrs = attrs;
  return node;
}

}  // namespace linnet
