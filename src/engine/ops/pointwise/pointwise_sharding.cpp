#include "engine/ops/broadcast.h"
#include "engine/ops/sharding_rules.h"

namespace linnet {
namespace {

// The axis of an operand that lies along an axis of the result; none where the operand is repeated.
std::optional<int> axis_of_operand(const Shape& operand, const Shape& out, int axis) {
  const std::optional<Broadcast> kind = find_broadcast(operand, out);
  if (!kind || *kind == Broadcast::kScalar) return {};
  const int own = *kind == Broadcast::kSuffix ? axis - (out.rank() - operand.rank()) : axis;
  if (own < 0 || own >= operand.rank() || operand[own] != out[axis]) return {};
  return own;
}

std::optional<int> axis_of_result(const Shape& operand, const Shape& out, int axis) {
  for (int i = 0; i < out.rank(); ++i)
    if (axis_of_operand(operand, out, i) == axis) return i;
  return {};
}

}  // namespace

std::optional<ShardedNode> shard_pointwise(const ShardArgs& args) {
  const Shape& out = args.out[0].shape;
  std::optional<Sharding> result;
  for (size_t i = 0; i < args.in.size() && !result; ++i) {
    if (!args.sharding[i].is_cut()) continue;
    const std::optional<int> axis = axis_of_result(args.in[i].shape, out, args.sharding[i].axis);
    if (!axis) return {};
    result = Sharding::cut(*axis, args.sharding[i].parts);
  }
  if (!result) return {};
  ShardedNode node{.attrs = args.node.attrs, .in = {}, .out = {*result}};
  for (const TensorType& in : args.in) {
    const std::optional<int> axis = axis_of_operand(in.shape, out, result->axis);
    node.in.push_back(axis ? Sharding::cut(*axis, result->parts) : Sharding::whole());
  }
  return node;
}

}  // namespace linnet
