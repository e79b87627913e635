#include "engine/ops/attention/attention.h"
#include "engine/ops/sharding_rules.h"

namespace linnet {

std::optional<ShardedNode> shard_attention(const ShardArgs& args) {
  AttentionAttrs attrs = args.node.attrs.as<AttentionAttrs>();
  bool any = false;
  for (size_t i = 0; i < kAttentionFixed; ++i) any = any || args.sharding[i].is_cut();
  const bool bias_of_samples = attrs.has_bias && args.in[attrs.bias_at(kAttentionFixed)].shape.rank() == 3;
  if (!any || bias_of_samples) return {};
  const int64_t ranks = args.rank.ranks, heads = attrs.heads;
  if (heads % ranks != 0 || attrs.kv_heads % ranks != 0)
    fail_user("heads = " + std::to_string(heads) +
              (attrs.kv_heads == heads ? "" : " and key-value heads = " + std::to_string(attrs.kv_heads)) +
              " cannot be divided between " + std::to_string(ranks) +
              " tensor ranks: choose a number of them that divides the heads");
  attrs.heads /= ranks, attrs.kv_heads /= ranks;
  attrs.first_head = attrs.heads * args.rank.rank;
  ShardedNode node{.attrs = attrs, .in = {}, .out = {}};
  for (size_t i = 0; i < kAttentionFixed; ++i) node.in.push_back(Sharding::cut(2, {args.in[i].shape[2]}));
  node.in.resize(args.in.size());
  if (attrs.has_bias) node.in[attrs.bias_at(kAttentionFixed)] = Sharding::cut(0, {heads});
  node.out = {Sharding::cut(2, {args.out[0].shape[2]}), Sharding::cut(1, {heads})};
  return node;
}

}  // namespace linnet
