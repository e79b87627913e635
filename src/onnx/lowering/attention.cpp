// Attention as the nodes that ONNX Runtime's optimizer looks for:
//   softmax(where(visible, q k^T / sqrt(size) [+ distance bias], lowest) + key mask) v
#include "engine/ops/attention/attention.h"
#include <algorithm>
#include <limits>
#include "onnx/lowering/lowering.h"

namespace linnet {
namespace {
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
