#include <algorithm>

#include "engine/ops/movement/movement.h"
#include "engine/ops/sharding_rules.h"

namespace linnet {
namespace {

std::vector<int64_t> ends_of(std::span<const int64_t> sizes) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const int64_t size : sizes)
    if (size > 0) ends.push_back(end += size);
  return ends;
}

// The sizes between the ends of either.
std::vector<int64_t> common_parts(std::span<const int64_t> a, std::span<const int64_t> b) {
  std::vector<int64_t> ends = ends_of(a);
  for (const int64_t end : ends_of(b)) ends.push_back(end);
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < ends.size(); ++i) sizes.push_back(ends[i] - (i > 0 ? ends[i - 1] : 0));
  return sizes;
}

}  // namespace

std::optional<ShardedNode> shard_split(const ShardArgs& args) {
  SplitAttrs attrs = args.node.attrs.as<SplitAttrs>();
  const Sharding& x = args.sharding[0];
  if (!x.is_cut()) return {};
  if (x.axis != attrs.axis)
    return ShardedNode{.attrs = attrs, .in = {x}, .out = std::vector<Sharding>(attrs.sizes.size(), x)};
  const std::vector<int64_t> parts = common_parts(x.parts, attrs.sizes);
  ShardedNode node{.attrs = {}, .in = {Sharding::cut(x.axis, parts)}, .out = {}};
  auto part = parts.begin();
  for (int64_t& size : attrs.sizes) {
    Sharding out = Sharding::cut(x.axis, {});
    for (int64_t left = size; left > 0; left -= *part++) out.parts.push_back(*part);
    Shape piece = args.in[0].shape;
    piece.set(x.axis, size);
    size = local_shape(piece, out, args.rank)[x.axis];
    node.out.push_back(out);
  }
  node.attrs = attrs;
  return node;
}

// An axis stays divided where it stays the same axis: as many elements before it, and its size.
std::optional<ShardedNode> shard_reshape(const ShardArgs& args) {
  const Sharding& x = args.sharding[0];
  const Shape &from = args.in[0].shape, &to = args.out[0].shape;
  if (!x.is_cut()) return {};
  const int64_t before = from.elements(0, x.axis);
  for (int axis = 0; axis < to.rank(); ++axis) {
    if (to.elements(0, axis) != before || to[axis] != from[x.axis]) continue;
    const Sharding out = Sharding::cut(axis, x.parts);
    return ShardedNode{.attrs = ReshapeAttrs{local_shape(to, out, args.rank)}, .in = {x}, .out = {out}};
  }
  return {};
}

std::optional<ShardedNode> shard_permute(const ShardArgs& args) {
  const Sharding& x = args.sharding[0];
  if (!x.is_cut()) return {};
  const std::vector<int>& order = args.node.attrs.as<PermuteAttrs>().order;
  const auto axis = static_cast<int>(std::ranges::find(order, x.axis) - order.begin());
  return ShardedNode{.attrs = args.node.attrs, .in = {x}, .out = {Sharding::cut(axis, x.parts)}};
}

}  // namespace linnet
