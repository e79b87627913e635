// The division of values between the ranks of a tensor group, and the ops' rules.
#include "engine/ops/sharding.h"
#include <algorithm>
#include "engine/ops/attention/attention.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/rope/rope.h"

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

namespace {
// A linear layer with divided outputs gives a result with a divided last axis (column-parallel); one with divided
// inputs gives summands (row-parallel).
std::optional<ShardedNode> shard_matmul(const ShardArgs& args) {
  const auto& attrs = args.attrs<MatmulAttrs>();
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

// The operand's axis for an axis of the result; none if the operand is repeated there.
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

// Every operand is divided along the same axis of the result; one that is repeated along it is whole.
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

// The masks are those of the whole tensor.
std::optional<ShardedNode> shard_dropout(const ShardArgs& args) {
  DropoutAttrs attrs = args.attrs<DropoutAttrs>();
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

// By heads. User error if heads cannot be divided evenly.
std::optional<ShardedNode> shard_attention(const ShardArgs& args) {
  AttentionAttrs attrs = args.attrs<AttentionAttrs>();
  bool any = false;
  for (size_t i = 0; i < kAttentionFixed; ++i) any = any || args.sharding[i].is_cut();
  const bool bias_of_samples = attrs.has_bias && args.in[attrs.bias_at(kAttentionFixed)].shape.rank() == 3;
  if (!any || bias_of_samples) return {};
  const int64_t ranks = args.rank.ranks, heads = attrs.heads;
  if (heads % ranks != 0 || attrs.kv_heads % ranks != 0)
    fail_user("heads = ", heads,
        attrs.kv_heads == heads ? "" : " and key-value heads = " + std::to_string(attrs.kv_heads),
        " cannot be divided between ", ranks, " tensor ranks: choose a number of them that divides the heads");
  attrs.heads /= ranks, attrs.kv_heads /= ranks;
  attrs.first_head = attrs.heads * args.rank.rank;
  ShardedNode node{.attrs = attrs, .in = {}, .out = {}};
  for (size_t i = 0; i < kAttentionFixed; ++i) node.in.push_back(Sharding::cut(2, {args.in[i].shape[2]}));
  node.in.resize(args.in.size());
  if (attrs.has_bias) node.in[attrs.bias_at(kAttentionFixed)] = Sharding::cut(0, {heads});
  node.out = {Sharding::cut(2, {args.out[0].shape[2]}), Sharding::cut(1, {heads})};
  return node;
}

std::optional<ShardedNode> shard_rope(const ShardArgs& args) {  // by heads, as attention
  RopeAttrs attrs = args.attrs<RopeAttrs>();
  const Sharding& x = args.sharding[0];
  const int64_t turned = attrs.heads * attrs.head_size, width = args.in[0].shape[2];
  if (!x.is_cut() || x.axis != 2) return {};
  ShardedNode node{.attrs = {}, .in = {x}, .out = {x}};
  node.in.resize(args.in.size());
  // Rotated heads come first on every rank, so they are separate parts.
  int64_t before = 0, heads = 0;
  for (size_t i = 0; i < x.parts.size() && before < turned; ++i) {
    if (x.parts[i] % (attrs.head_size * args.rank.ranks) != 0)
      fail_user("heads = ", attrs.heads, " of queries and keys together cannot be divided between ", args.rank.ranks,
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

// Along the divided axis: the pieces are the parts of the operand.
std::optional<ShardedNode> shard_split(const ShardArgs& args) {
  SplitAttrs attrs = args.attrs<SplitAttrs>();
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

// An axis stays divided if it has the same size and as many elements before it.
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
  const std::vector<int>& order = args.attrs<PermuteAttrs>().order;
  const auto axis = static_cast<int>(std::ranges::find(order, x.axis) - order.begin());
  return ShardedNode{.attrs = args.node.attrs, .in = {x}, .out = {Sharding::cut(axis, x.parts)}};
}

// Tables of few rows (positions, distances, token types) cost less than the sum that dividing them takes.
constexpr int64_t kFewRows = 512;

// By rows of the table, if it has many: a rank gives zeros for the others' rows.
std::optional<ShardedNode> shard_embedding(const ShardArgs& args) {
  EmbeddingAttrs attrs = args.attrs<EmbeddingAttrs>();
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

std::optional<ShardedNode> shard_linear_cross_entropy(const ShardArgs& args) {  // by classes
  LinearCrossEntropyAttrs attrs = args.attrs<LinearCrossEntropyAttrs>();
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
}  // namespace

ShardRule shard_rule(const OpDef& op) {
  static const std::pair<const OpDef*, ShardRule> rules[] = {{&kMatmul, shard_matmul}, {&kPointwise, shard_pointwise},
      {&kDropout, shard_dropout}, {&kAttention, shard_attention}, {&kRope, shard_rope}, {&kSplit, shard_split},
      {&kReshape, shard_reshape}, {&kPermute, shard_permute}, {&kEmbedding, shard_embedding},
      {&kLinearCrossEntropy, shard_linear_cross_entropy}};
  for (const auto& [of, rule] : rules)
    if (of == &op) return rule;
  return nullptr;
}
}  // namespace linnet
