#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/sharding_rules.h"

namespace linnet {

std::optional<ShardedNode> shard_linear_cross_entropy(const ShardArgs& args) {
  LinearCrossEntropyAttrs attrs = args.node.attrs.as<LinearCrossEntropyAttrs>();
  const Sharding& weight = args.sharding[1];
  const int64_t classes = args.in[1].shape[0];
  const bool divides = weight.kind == Sharding::Kind::kFree && classes >= args.rank.ranks;
  const bool is_divided = weight.is_cut() && weight.axis == 0 && weight.parts.size() == 1;
  if (attrs.packed || !(divides || is_divided)) return {};
  attrs.all_classes = classes;
  attrs.first_class = part_of_axis(classes, args.rank).first;
  attrs.ranks = args.rank.ranks;
  ShardedNode node{.attrs = attrs, .in = {}, .out = {Sharding::whole()}, .exchanges = true};
  node.in.resize(args.in.size());
  node.in[1] = Sharding::cut(0, {classes});
  if (attrs.bias) node.in[3] = Sharding::cut(0, {classes});
  return node;
}

}  // namespace linnet
