// The lowerings of attention and of what stands before it: axes of heads, rotary positions, masks and biases of scores.
#include "engine/ops/attention/attention.h"
#include <algorithm>
#include <limits>
#include "base/functions.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/rope/rope.h"
#include "onnx/lowering/lowering.h"

namespace linnet {
namespace {
const std::vector<int> kSwapHeads{0, 2, 1, 3};

bool swaps_heads(const Node* node) { return is(node, kPermute) && node->attrs.as<PermuteAttrs>().order == kSwapHeads; }

// [B, T, H, D] as [B, T, H * D], or back.
bool joins_heads(const OnnxLowering& to, ValueId apart, ValueId rows) {
  const Shape &four = to.graph().value(apart).type.shape, &three = to.graph().value(rows).type.shape;
  return four.rank() == 4 && three.rank() == 3 && four[0] == three[0] && four[1] == three[1];
}

// Rows [B, T, H * D] as [B, H, T, D], ONNX's usual form, also of a decoder's keys and values. Rows that were made from
// that form, or joined along T from such, are taken back directly.
std::string by_heads_in_onnx(OnnxLowering& to, ValueId rows, int64_t heads) {
  const Node* node = to.producer(rows);
  if (is(node, kReshape)) {
    const Node* before = to.producer(node->in[0]);
    if (swaps_heads(before) && joins_heads(to, node->in[0], rows) &&
        to.graph().value(before->in[0]).type.shape[1] == heads)
      return to.name_of(before->in[0]);
  }
  if (is(node, kConcat) && node->attrs.as<ConcatAttrs>().axis == 1) {
    const auto apart = [&](ValueId part) { return by_heads_in_onnx(to, part, heads); };
    return to.builder.add("Concat", mapped(node->in, apart), {int_attribute("axis", 2)});
  }
  const SymbolicShape& shape = to.shape_of(rows);
  const SymbolicShape apart{shape[0], shape[1], {heads}, {shape[2].constant / heads}};
  return to.builder.transpose(to.builder.reshape(to.name_of(rows), shape, apart), {0, 2, 1, 3});
}

// The angles of all positions: float [B or 1, T, 1, half].
std::string angles(OnnxLowering& to, const RopeAttrs& attrs) {
  OnnxBuilder& b = to.builder;
  std::string positions;
  if (attrs.has_positions) positions = b.unsqueeze(to.in(1), {2, 3});
  else
    positions = b.unsqueeze(b.add("Range", {b.integer(0), b.size_scalar(to.in_shape(0)[1]), b.integer(1)}), {0, 2, 3});
  const std::vector<float> frequencies = mapped(
      attrs.half(), [&](int64_t i) { return static_cast<float>(rope_frequency(attrs, i) * (attrs.inverse ? -1 : 1)); });
  return b.add("Mul", {b.cast(positions, OnnxElement::kFloat), b.tensor(float_tensor({attrs.half()}, frequencies))});
}

std::string repeat_heads(OnnxLowering& to, const std::string& x, size_t operand, const AttentionAttrs& attrs) {
  if (attrs.heads == attrs.kv_heads) return x;
  const SymbolicShape& rows = to.in_shape(operand);
  const SymbolicSize size{rows[2].constant / attrs.kv_heads};
  const SymbolicShape repeated{rows[0], {attrs.kv_heads}, {attrs.heads / attrs.kv_heads}, rows[1], size};
  const std::string wide = to.builder.add("Expand", {to.builder.unsqueeze(x, {2}), to.builder.shape(repeated)});
  return to.builder.reshape(wide, repeated, {rows[0], {attrs.heads}, rows[1], size});
}

// int64 [Tq, 1] and [Tk]; the last query is at the last key.
struct Locations {
  std::string queries, keys;
};

Locations locations(OnnxBuilder& b, const SymbolicSize& queries, const SymbolicSize& keys) {
  const std::string query_count = b.size_scalar(queries), key_count = b.size_scalar(keys);
  const std::string zero = b.integer(0), one = b.integer(1);
  const std::string all = b.add("Range", {zero, key_count, one});
  if (queries == keys) return {b.unsqueeze(all, {1}), all};
  return {b.unsqueeze(b.add("Range", {b.add("Sub", {key_count, query_count}), key_count, one}), {1}), all};
}

// Keys that each query sees: bool [Tq, Tk] or [B, 1, Tq, Tk]; "": all. `attrs`: those of attention or of a mask.
template <class MaskAttrs> std::string visible(
    OnnxLowering& to, const MaskAttrs& attrs, size_t starts, const SymbolicSize& queries, const SymbolicSize& keys) {
  OnnxBuilder& b = to.builder;
  std::string result;
  const auto both = [&](const std::string& part) { result = result.empty() ? part : b.add("And", {result, part}); };
  if (!attrs.causal && !attrs.has_starts) return "";
  const Locations at = locations(b, queries, keys);
  if (attrs.causal) both(b.add("LessOrEqual", {at.keys, at.queries}));
  if (attrs.window > 0) both(b.add("Greater", {at.keys, b.add("Sub", {at.queries, b.integer(attrs.window)})}));
  if (attrs.has_starts) both(b.add("GreaterOrEqual", {at.keys, b.unsqueeze(to.in(starts), {1, 3})}));
  return result;
}

// The same for causal attention, cut from a constant triangle [1, 1, size, size]. `q` and `k` are [B, H, T, D].
std::string visible_in_triangle(OnnxLowering& to, const std::string& q, const std::string& k, int64_t size) {
  OnnxBuilder& b = to.builder;
  std::vector<uint8_t> triangle(size * size);
  for (int64_t row = 0; row < size; ++row) std::fill_n(triangle.begin() + row * size, row + 1, uint8_t{1});
  const OnnxTensor constant = tensor_of("", OnnxElement::kBool, {1, 1, size, size}, std::move(triangle));
  const std::string zero = b.ints({0}), rows = b.ints({2}), columns = b.ints({3});
  const auto length = [&](const std::string& of) {
    return b.add("Squeeze", {b.add("Slice", {b.add("Shape", {of}), rows, columns, zero}), zero});
  };
  const std::string keys = length(k), end = b.unsqueeze(keys, {0});
  const std::string first = b.unsqueeze(b.add("Sub", {keys, length(q)}), {0});
  return b.add("Slice", {b.add("Slice", {b.tensor(constant), first, end, rows}), zero, end, columns});
}

// [H, Tq + Tk - 1] -> [H, Tq, Tk]
std::string bias_by_places(OnnxLowering& to, const std::string& bias) {
  OnnxBuilder& b = to.builder;
  const SymbolicSize key_count = to.in_shape(1)[1];
  const Locations at = locations(b, to.in_shape(0)[1], key_count);
  const std::string entry = b.add("Add", {b.add("Sub", {at.keys, at.queries}), b.size(key_count + SymbolicSize{-1})});
  return b.add("Gather", {bias, entry}, {int_attribute("axis", 1)});
}

// `mask` may be ""; `lengths`: the operand with key counts, 0 for none.
std::string masked(
    OnnxLowering& to, std::string scores, const std::string& mask, size_t lengths, const SymbolicSize& keys) {
  OnnxBuilder& b = to.builder;
  if (!mask.empty()) scores = b.add("Where", {mask, scores, b.number(std::numeric_limits<float>::lowest())});
  return lengths > 0 ? b.add("Add", {scores, to.key_mask(lengths, keys)}) : scores;
}
}  // namespace

void lower_permute(OnnxLowering& to) {
  const auto& order = to.attrs<PermuteAttrs>().order;
  const ValueId x = to.node().in[0];
  const Node* before = to.producer(x);
  const bool fixed = order == kSwapHeads && to.in_shape(0)[2].is_constant() && to.in_shape(0)[3].is_constant();
  if (fixed && is(before, kReshape) && joins_heads(to, x, before->in[0]))
    return to.set(0, by_heads_in_onnx(to, before->in[0], to.in_type(0).shape[2]));
  to.set(0, to.builder.transpose(to.in(0), {order.begin(), order.end()}));
}

void lower_rope(OnnxLowering& to) {
  const auto& attrs = to.attrs<RopeAttrs>();
  OnnxBuilder& b = to.builder;
  const SymbolicShape& rows = to.in_shape(0);
  const int64_t turned = attrs.heads * attrs.head_size, rest = rows[2].constant - turned;
  const OnnxAttribute last = int_attribute("axis", -1);
  std::vector<std::string> parts{to.in(0)};
  if (rest > 0) parts = b.add_many("Split", {to.in(0), b.ints({turned, rest})}, 2, {last});
  const SymbolicShape flat{rows[0], rows[1], {turned}}, apart{rows[0], rows[1], {attrs.heads}, {attrs.head_size}};
  const int64_t half = attrs.half(), tail = attrs.head_size - 2 * half;
  std::vector<int64_t> sizes{half, half};
  if (tail > 0) sizes.push_back(tail);
  const std::vector<std::string> x =
      b.add_many("Split", {b.reshape(parts[0], flat, apart), b.ints(sizes)}, static_cast<int>(sizes.size()), {last});
  const auto scaled = [&](const std::string& of) {
    const double magnitude = attrs.scaling.magnitude;
    return magnitude == 1 ? of : b.add("Mul", {of, b.tensor(float_tensor({1}, {static_cast<float>(magnitude)}))});
  };
  const std::string angle = angles(to, attrs), cos = scaled(b.add("Cos", {angle})), sin = scaled(b.add("Sin", {angle}));
  const std::string first = b.add("Sub", {b.add("Mul", {x[0], cos}), b.add("Mul", {x[1], sin})});
  const std::string second = b.add("Add", {b.add("Mul", {x[1], cos}), b.add("Mul", {x[0], sin})});
  std::vector<std::string> elements{first, second};
  if (tail > 0) elements.push_back(x[2]);
  const std::string y = b.reshape(b.add("Concat", elements, {last}), apart, flat);
  to.set(0, rest > 0 ? b.add("Concat", {y, parts[1]}, {last}) : y);
}

// A table of buckets by distance up to the largest, which farther ones share.
void lower_distance_buckets(OnnxLowering& to) {
  const auto& attrs = to.attrs<DistanceBucketsAttrs>();
  const int64_t far = attrs.max_distance + 1;
  std::vector<int64_t> buckets;
  for (int64_t distance = -far; distance <= far; ++distance)
    buckets.push_back(distance_bucket(distance, attrs.buckets, attrs.max_distance, attrs.bidirectional));
  OnnxBuilder& b = to.builder;
  const SymbolicSize queries = to.fit([](const Node& node) { return node.attrs.as<DistanceBucketsAttrs>().queries; });
  std::string distance = b.add("Range", {b.integer(0), b.size_scalar(to.out_shape(0)[0]), b.integer(1)});
  distance = b.add("Sub", {distance, b.size(queries + SymbolicSize{-1})});
  if (attrs.has_position) distance = b.add("Sub", {distance, to.in(0)});
  const std::string near = b.add("Max", {b.add("Min", {distance, b.integer(far)}), b.integer(-far)});
  to.add("Gather", {b.ints(buckets), b.add("Add", {near, b.integer(far)})}, {int_attribute("axis", 0)});
}

void lower_mask_scores(OnnxLowering& to) {
  const auto& attrs = to.attrs<ScoreMaskAttrs>();
  const SymbolicSize queries = to.in_shape(0)[2], keys = to.in_shape(0)[3];
  const std::string mask = visible(to, attrs, 1u + attrs.has_lengths, queries, keys);
  to.set(0, masked(to, to.in(0), mask, attrs.has_lengths ? 1 : 0, keys));
}

void lower_attention(OnnxLowering& to) {
  const auto& attrs = to.attrs<AttentionAttrs>();
  if (attrs.dropout > 0) to.fail("it has dropout");
  if (to.is_used(1)) to.fail("the logarithms of its sums are read");
  OnnxBuilder& b = to.builder;
  const Node& node = to.node();
  const std::string q = by_heads_in_onnx(to, node.in[0], attrs.heads);
  const std::string k = repeat_heads(to, by_heads_in_onnx(to, node.in[1], attrs.kv_heads), 1, attrs);
  const std::string v = repeat_heads(to, by_heads_in_onnx(to, node.in[2], attrs.kv_heads), 2, attrs);
  std::string scores = b.add("MatMul", {q, b.transpose(k, {0, 1, 3, 2})});
  if (attrs.scale != 1) scores = b.add("Div", {scores, b.number(1 / attrs.scale)});
  if (attrs.has_bias) scores = b.add("Add", {scores, bias_by_places(to, to.in(attrs.bias_at(kAttentionFixed)))});
  const bool in_triangle = to.form.causal_mask_size > 0 && attrs.causal && attrs.window == 0 && !attrs.has_starts;
  const SymbolicSize queries = to.in_shape(0)[1], keys = to.in_shape(1)[1];
  const std::string mask = in_triangle ? visible_in_triangle(to, q, k, to.form.causal_mask_size)
                                       : visible(to, attrs, attrs.starts_at(kAttentionFixed), queries, keys);
  scores = masked(to, scores, mask, attrs.has_lengths ? 3 : 0, keys);
  const std::string weights = b.add("Softmax", {scores}, {int_attribute("axis", -1)});
  const SymbolicShape& rows = to.in_shape(0);
  const SymbolicShape apart{rows[0], rows[1], {attrs.heads}, {rows[2].constant / attrs.heads}};
  to.set(0, b.reshape(b.transpose(b.add("MatMul", {weights, v}), {0, 2, 1, 3}), apart, rows));
}
}  // namespace linnet
