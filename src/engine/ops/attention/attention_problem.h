// A node of attention, or of its gradient, as the kernels of kernels/attention take it.
#pragma once
#include "engine/kernels/attention/attention.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/dropout/dropout.h"

namespace linnet {

inline AttentionArgs attention_sizes(const AttentionAttrs& attrs, const TensorType& q, const TensorType& k) {
  AttentionArgs out{};
  out.batch = q.shape[0], out.query_length = q.shape[1], out.key_length = k.shape[1];
  out.query_heads = attrs.heads, out.kv_heads = attrs.kv_heads, out.head_size = q.shape[2] / attrs.heads;
  out.scale = static_cast<float>(attrs.scale), out.causal = attrs.causal, out.dropout = attrs.dropout;
  out.precision = attrs.precision, out.window = attrs.window, out.biased = attrs.has_bias;
  out.independent_queries = attrs.independent_queries, out.first_head = attrs.first_head;
  return out;
}

inline AttentionArgs attention_problem(const KernelArgs& args, size_t fixed = kAttentionFixed) {
  const auto& attrs = args.attrs<AttentionAttrs>();
  AttentionArgs out = attention_sizes(attrs, args.in[0].type, args.in[1].type);
  if (attrs.has_lengths) out.key_lengths = args.in[fixed].as<int32_t>();
  if (attrs.has_starts) out.starts = args.in[attrs.starts_at(fixed)].as<int32_t>();
  if (attrs.has_bias) {
    const TensorView& bias = args.in[attrs.bias_at(fixed)];
    out.distance_bias = bias.as<float>(), out.bias_stride = bias_stride(bias.shape());
  }
  if (attrs.dropout > 0) out.dropout_key = dropout_key(args.in.back().as<int32_t>(), attrs.dropout_site);
  return out;
}

inline AttentionRows attention_rows(const TensorView& x) { return {stored(x), x.strides[0], x.strides[1]}; }
inline MutableAttentionRows mutable_attention_rows(const TensorView& x) {
  return {mutable_stored(x), x.strides[0], x.strides[1]};
}

// The kernel's tiles are laid out for heads of up to 256.
inline bool has_attention_tiles(const KernelQuery& query) {
  const auto& attrs = query.attrs<AttentionAttrs>();
  return f32_or_reduced(query) && query.in[0].shape[2] / attrs.heads <= 256;
}

}  // namespace linnet
