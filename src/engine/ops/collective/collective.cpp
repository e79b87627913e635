#include "engine/ops/collective/collective.h"
#include <algorithm>
#include <set>
#include <utility>
#include "distributed/comm/tensor_group.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/rope/rope.h"

namespace linnet {
namespace {
// A rank's elements [first, first + count) of an axis of `size`.
struct AxisPart {
  int64_t first, count;
};

AxisPart part_of_axis(int64_t size, const TensorRank& rank) {
  const int64_t first = size * rank.rank / rank.ranks;
  return {first, size * (rank.rank + 1) / rank.ranks - first};
}
}  // namespace

Shape local_shape(const Shape& whole, const Sharding& sharding, const TensorRank& rank) {
  if (!sharding.is_cut()) return whole;
  const auto own = [&](int64_t part) { return part_of_axis(part, rank).count; };
  return with_size(whole, sharding.axis, sum_of<int64_t>(sharding.parts, own));
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
std::vector<TensorType> infer_collective_gather(const InferArgs& args) {
  const auto& attrs = args.attrs.as<AllGatherAttrs>();
  const TensorType& out = args.in[0];
  expect(is_float(out.dtype) && attrs.axis >= 0 && attrs.axis < out.shape.rank(), "got ", out);
  const auto own_count = [&](int64_t part) { return part_of_axis(part, {attrs.rank, attrs.ranks}).count; };
  const auto own = sum_of<int64_t>(attrs.parts, own_count);
  expect(out.shape[attrs.axis] == own, "got ", out, ", expected ", own, " along axis ", attrs.axis);
  return {{out.dtype, with_size(out.shape, attrs.axis, sum_of<int64_t>(attrs.parts))}};
}

std::vector<TensorType> infer_stage_output(const InferArgs& args) {
  const size_t values = args.in.size() / 2;
  expect(values > 0 && args.in.size() == 2 * values, "got ", args.in.size(),
      " operands, expected values and as many gradients");
  for (size_t i = 0; i < values; ++i)
    expect(is_float(args.in[i].dtype) && args.in[values + i] == args.in[i], "got ", args.in[i], " with the gradient ",
        args.in[values + i]);
  return {{args.in[0].dtype, {}}};
}

std::vector<Tensor> stage_output_gradient(const GradientArgs& args) {
  const size_t values = args.in.size() / 2;
  std::vector<Tensor> gradients(args.in.size());
  for (size_t i = 0; i < values; ++i) gradients[i] = args.in[values + i];
  return gradients;
}

size_t sum_workspace(const KernelQuery& query) {
  const auto& attrs = query.attrs<CollectiveAttrs>();
  return sum_scratch_size(static_cast<size_t>(query.in[0].shape.elements()), attrs.ranks) * sizeof(float);
}

void run_sum(const KernelArgs& args) {
  const int ranks = args.attrs<CollectiveAttrs>().ranks;
  copy_operand(args.in[0], args.out[0]);
  const auto count = static_cast<size_t>(args.out[0].elements());
  sum_over_ranks(checked_group(args.tensor_group, ranks), {args.out[0].as<float>(), count},
      {reinterpret_cast<float*>(args.workspace), sum_scratch_size(count, ranks)}, args.pool);
}

void run_zero(const KernelArgs& args) { std::memset(args.out[0].data, 0, args.out[0].type.bytes()); }

size_t gather_workspace(const KernelQuery& query) {  // the other ranks' parts
  return bytes_for<float>(query.out[0].shape.elements() - query.in[0].shape.elements());
}

void run_collective_gather(const KernelArgs& args) {
  const auto& attrs = args.attrs<AllGatherAttrs>();
  Communicator& group = checked_group(args.tensor_group, attrs.ranks);
  const Sharding sharding = Sharding::cut(attrs.axis, attrs.parts);
  const auto bytes_of = [](float* values, int64_t count) {
    return std::as_writable_bytes(std::span(values, static_cast<size_t>(count)));
  };
  auto& [outgoing, incoming, pieces] = group.empty_lists();
  auto* location = reinterpret_cast<float*>(args.workspace);
  for (int rank = 0; rank < attrs.ranks; ++rank) {
    pieces.push_back(rank == attrs.rank ? args.in[0].as<float>() : location);
    if (rank == attrs.rank) continue;
    const int64_t count = local_shape(args.out[0].shape(), sharding, {rank, attrs.ranks}).elements();
    outgoing.push_back({rank, bytes_of(args.in[0].as<float>(), args.in[0].elements())});
    incoming.push_back({rank, bytes_of(location, count)});
    location += count;
  }
  group.exchange(outgoing, incoming);
  for (int rank = 0; rank < attrs.ranks; ++rank) {
    const float* const piece = pieces[rank];
    for_runs(args.out[0].shape(), sharding, {rank, attrs.ranks}, [&](int64_t to, int64_t from, int64_t count) {
      std::copy_n(piece + from, count, args.out[0].as<float>() + to);
    });
  }
}

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
  const bool any = std::ranges::any_of(args.sharding.first(kAttentionFixed), &Sharding::is_cut);
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

// The sizes between the ends of either.
std::vector<int64_t> common_parts(std::span<const int64_t> a, std::span<const int64_t> b) {
  std::set<int64_t> ends;
  for (const std::span<const int64_t> sizes : {a, b}) {
    int64_t end = 0;
    for (const int64_t size : sizes) ends.insert(end += size);
  }
  ends.erase(0);  // of empty parts
  int64_t begin = 0;
  return mapped(ends, [&](int64_t end) { return end - std::exchange(begin, end); });
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
    size = local_shape(with_size(args.in[0].shape, x.axis, size), out, args.rank)[x.axis];
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
  ShardedNode node{
      .attrs = attrs, .in = std::vector<Sharding>(args.in.size()), .out = {Sharding::whole()}, .exchanges = true};
  node.in[1] = Sharding::cut(0, {classes});
  if (attrs.bias) node.in[3] = Sharding::cut(0, {classes});
  return node;
}
}  // namespace

const OpDef kAllReduce{
    .name = "all_reduce", .infer = infer_same_float, .gradient = first_gradient, .may_overwrite = overwrites_first};
const OpDef kShare{.name = "share",
    .infer = infer_same_float,
    .gradient = [](const GradientArgs& args) { return args.add(kAllReduce, {args.out_grad[0]}); },
    .may_overwrite = overwrites_first};
const OpDef kAllGather{.name = "all_gather",
    .infer = takes<1, infer_collective_gather>,
    .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
      const auto& attrs = args.attrs<AllGatherAttrs>();
      return {cut(
          At(args.out_grad[0], args.node.where), Sharding::cut(attrs.axis, attrs.parts), {attrs.rank, attrs.ranks})};
    }};
const OpDef kHold{.name = "hold", .infer = [](const InferArgs& args) -> std::vector<TensorType> {
                    expect(!args.in.empty() && is_float(args.in[0].dtype), "expected floats");
                    return {{args.in[0].dtype, {}}};
                  }};
const OpDef kStageOutput{.name = "stage_output", .infer = infer_stage_output, .gradient = stage_output_gradient};

Tensor all_reduce(At x, const TensorRank& rank) { return op_result(kAllReduce, x, {}, CollectiveAttrs{rank.ranks}); }

Tensor share(At x, const TensorRank& rank) { return op_result(kShare, x, {}, CollectiveAttrs{rank.ranks}); }

Tensor all_gather(At x, const Sharding& sharding, const TensorRank& rank) {
  return op_result(kAllGather, x, {}, AllGatherAttrs{sharding.axis, sharding.parts, rank.rank, rank.ranks});
}

Tensor hold(At x, std::span<const Tensor> others) { return op_result(kHold, x, {others.begin(), others.end()}); }

Tensor cut(At x, const Sharding& sharding, const TensorRank& rank) {
  int64_t before = 0;
  const std::vector<Tensor> pieces = mapped(sharding.parts, [&](int64_t part) {
    const AxisPart own = part_of_axis(part, rank);
    return slice(x, sharding.axis, std::exchange(before, before + part) + own.first, own.count);
  });
  return joined(pieces, sharding.axis, x.where);
}

Tensor stage_output(std::span<const Tensor> values, std::span<const Tensor> gradients, SourceLine where) {
  return values.front().graph->add_one(kStageOutput, with_more({values.begin(), values.end()}, gradients), {}, where);
}

LINNET_KERNELS(all_reduce, {"ranks", run_sum, all_f32, sum_workspace})
LINNET_KERNELS(share, {"copy", copy_first})
LINNET_KERNELS(all_gather, {"ranks", run_collective_gather, all_f32, gather_workspace})
LINNET_KERNELS(hold, {"reference", run_zero})
LINNET_KERNELS(stage_output, {"zero", run_zero})

ShardRule shard_rule(const OpDef& op) {
  static const std::map<const OpDef*, ShardRule> rules = {{&kMatmul, shard_matmul}, {&kPointwise, shard_pointwise},
      {&kDropout, shard_dropout}, {&kAttention, shard_attention}, {&kRope, shard_rope}, {&kSplit, shard_split},
      {&kReshape, shard_reshape}, {&kPermute, shard_permute}, {&kEmbedding, shard_embedding},
      {&kLinearCrossEntropy, shard_linear_cross_entropy}};
  return find_or(rules, &op, nullptr);
}
}  // namespace linnet
