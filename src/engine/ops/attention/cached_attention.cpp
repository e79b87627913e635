#include "engine/ops/attention/cached_attention.h"
#include <algorithm>
#include <cmath>
#include "engine/kernels/attention/attention.h"

namespace linnet {
namespace {
constexpr size_t kRows = 3, kLengths = 4, kStarts = 5;  // operands after q, k, v

std::vector<TensorType> infer_cached_attention(const InferArgs& args) {
  const auto& attrs = args.attrs.as<CachedAttentionAttrs>();
  expect_inputs(args, kStarts + (attrs.has_starts ? 1u : 0u));
  const TensorType &q = args.in[0], &k = args.in[1], &v = args.in[2];
  const std::string all = "got q " + q.text() + ", k " + k.text() + ", v " + v.text();
  expect(q.shape.rank() == 3 && q.shape[1] == 1 && k.shape.rank() == 3 && k == v && is_float(q.dtype) &&
             q.dtype == k.dtype,
      all, ", expected [N, 1, heads * size] and [S, T, heads * size], k and v alike");
  expect(attrs.heads > 0 && attrs.kv_heads > 0 && attrs.heads % attrs.kv_heads == 0 && q.shape[2] % attrs.heads == 0 &&
             q.shape[2] / attrs.heads * attrs.kv_heads == k.shape[2],
      all, " with ", attrs.heads, " heads and ", attrs.kv_heads, " key heads");
  const TensorType indices{DType::kI32, {q.shape[0]}};
  expect(args.in[kRows] == indices && args.in[kLengths] == indices, all, ", rows ", args.in[kRows], ", lengths ",
      args.in[kLengths]);
  if (attrs.has_starts)
    expect(args.in[kStarts] == TensorType{DType::kI32, {q.shape[0], 1}}, all, ", starts ", args.in[kStarts]);
  return {q};
}

AttentionArgs sizes(const CachedAttentionAttrs& attrs, const TensorType& q, const TensorType& k) {
  AttentionArgs out{};
  out.batch = q.shape[0], out.query_length = 1, out.key_length = k.shape[1];
  out.query_heads = attrs.heads, out.kv_heads = attrs.kv_heads, out.head_size = q.shape[2] / attrs.heads;
  out.scale = static_cast<float>(attrs.scale), out.soft_cap = static_cast<float>(attrs.soft_cap);
  return out;
}

void check_rows(const KernelArgs& args) {
  const int32_t *rows = args.in[kRows].as<int32_t>(), *lengths = args.in[kLengths].as<int32_t>();
  for (int64_t i = 0; i < args.in[0].shape()[0]; ++i)
    if (lengths[i] > 0 && (rows[i] < 0 || rows[i] >= args.in[1].shape()[0]))
      fail_internal("a token attends to a row beyond the cache");
}

bool supports_cached_attention(const KernelQuery& query) {
  return all_f32(query) && query.in[0].shape[2] / query.attrs<CachedAttentionAttrs>().heads <= 256;
}

size_t cached_attention_workspace(const KernelQuery& query) {
  return attention_few_queries_workspace(
      sizes(query.attrs<CachedAttentionAttrs>(), query.in[0], query.in[1]), query.threads);
}

void run_cached_attention(const KernelArgs& args) {
  check_rows(args);
  const auto& attrs = args.attrs<CachedAttentionAttrs>();
  AttentionArgs call = sizes(attrs, args.in[0].type, args.in[1].type);
  call.key_lengths = args.in[kLengths].as<int32_t>();
  if (attrs.has_starts) call.starts = args.in[kStarts].as<int32_t>();
  const auto rows = [](const TensorView& x) { return AttentionRows{stored(x), x.strides[0], x.strides[1]}; };
  const TensorView& o = args.out[0];
  attention_few_queries(call, rows(args.in[0]), rows(args.in[1]), rows(args.in[2]),
      {mutable_stored(o), o.strides[0], o.strides[1]}, nullptr, args.workspace, args.pool,
      args.in[kRows].as<int32_t>());
}

template <class T> void attend(const KernelArgs& args) {
  const auto& attrs = args.attrs<CachedAttentionAttrs>();
  const int64_t size = args.in[0].shape()[2] / attrs.heads, group = attrs.heads / attrs.kv_heads;
  const auto at = [](const TensorView& x, int64_t row, int64_t entry, int64_t element) {
    return x.as<T>() + row * x.strides[0] + entry * x.strides[1] + element;
  };
  std::vector<double> p, sums(static_cast<size_t>(size));
  for (int64_t i = 0; i < args.in[0].shape()[0]; ++i)
    for (int64_t head = 0; head < attrs.heads; ++head) {
      const int64_t row = args.in[kRows].as<int32_t>()[i], key_head = head / group * size;
      const int64_t end = std::min<int64_t>(args.in[kLengths].as<int32_t>()[i], args.in[1].shape()[1]);
      const int64_t first = attrs.has_starts ? args.in[kStarts].as<int32_t>()[i] : 0;
      const T* q = at(args.in[0], i, 0, head * size);
      p.clear();
      for (int64_t j = first; j < end; ++j) {
        double score = 0;
        for (int64_t d = 0; d < size; ++d) score += static_cast<double>(q[d]) * at(args.in[1], row, j, key_head)[d];
        score *= attrs.scale;
        p.push_back(attrs.soft_cap > 0 ? attrs.soft_cap * std::tanh(score / attrs.soft_cap) : score);
      }
      const double largest = p.empty() ? 0 : *std::ranges::max_element(p);
      double total = 0;
      for (double& x : p) total += x = std::exp(x - largest);
      std::ranges::fill(sums, 0);
      for (int64_t j = first; j < end; ++j)
        for (int64_t d = 0; d < size; ++d) sums[d] += p[j - first] / total * at(args.in[2], row, j, key_head)[d];
      std::ranges::transform(sums, at(args.out[0], i, 0, head * size), [](double x) { return static_cast<T>(x); });
    }
}

void run_cached_attention_reference(const KernelArgs& args) {
  check_rows(args);
  for_float(args.out[0].type.dtype, [&]<class T>() { attend<T>(args); });
}

// q k^T and p v, of all entries of a row of the cache.
double cached_attention_flops(const FlopsArgs& args) {
  return 4.0 * static_cast<double>(args.in[0].shape.elements()) * static_cast<double>(args.in[1].shape[1]);
}
}  // namespace

const OpDef kCachedAttention{.name = "cached_attention",
    .infer = infer_cached_attention,
    .strided_inputs = 0b111,
    .flops = cached_attention_flops};

LINNET_KERNELS(cached_attention,
    {"few_queries", supports_cached_attention, cached_attention_workspace, run_cached_attention},
    {"reference", nullptr, nullptr, run_cached_attention_reference})

Tensor cached_attention(At q, Tensor k, Tensor v, const CachedAttentionOptions& options) {
  CachedAttentionAttrs attrs{.heads = options.heads,
      .kv_heads = options.kv_heads ? options.kv_heads : options.heads,
      .scale = options.scale,
      .soft_cap = options.soft_cap,
      .has_starts = options.starts.defined()};
  if (attrs.scale == 0)
    attrs.scale = 1 / std::sqrt(static_cast<double>(q.value.dim(-1)) / static_cast<double>(attrs.heads));
  std::vector<Tensor> in{q.value, k, v, options.rows, options.lengths};
  if (attrs.has_starts) in.push_back(options.starts);
  return graph_of(q)->add_one(kCachedAttention, in, attrs, q.where);
}
}  // namespace linnet
