#include "engine/ops/attention/attention.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include "engine/kernels/attention/attention.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
// Checks q, k and v, and the number of queries unless it is 0. Returns the text of their types.
template <class T>
std::string expect_heads(const InferArgs& args, const T& attrs, int64_t queries, std::string_view expected) {
  const TensorType &q = args.in[0], &k = args.in[1], &v = args.in[2];
  std::string all = "got q " + q.text() + ", k " + k.text() + ", v " + v.text();
  expect(q.shape.rank() == 3 && k.shape.rank() == 3 && k == v && is_float(q.dtype) && q.dtype == k.dtype &&
             (queries == 0 || q.shape[1] == queries),
      all, ", expected ", expected, ", k and v alike");
  expect(attrs.heads > 0 && attrs.kv_heads > 0 && attrs.heads % attrs.kv_heads == 0 && q.shape[2] % attrs.heads == 0 &&
             q.shape[2] / attrs.heads * attrs.kv_heads == k.shape[2],
      all, " with ", attrs.heads, " heads and ", attrs.kv_heads, " key heads");
  return all;
}

std::vector<TensorType> infer_attention(const InferArgs& args) {
  const auto& attrs = args.attrs.as<AttentionAttrs>();
  expect_inputs(args, attrs.operand_count(kAttentionFixed));
  const std::string all = expect_heads(args, attrs, 0, "[B, T, heads * size]");
  const TensorType &q = args.in[0], &k = args.in[1];
  expect(q.shape[0] == k.shape[0], all, ": batches differ");
  if (attrs.has_lengths) expect(args.in[3] == TensorType{DType::kI32, {q.shape[0]}}, all, ", lengths ", args.in[3]);
  if (attrs.has_starts) {
    const TensorType& starts = args.in[attrs.starts_at(kAttentionFixed)];
    expect(starts == TensorType{DType::kI32, {q.shape[0], q.shape[1]}}, all, ", starts ", starts);
  }
  if (attrs.has_bias) {
    const int64_t entries = q.shape[1] + k.shape[1] - 1;
    const TensorType &bias = args.in[attrs.bias_at(kAttentionFixed)], one{q.dtype, {attrs.heads, entries}},
                     each{q.dtype, {q.shape[0], attrs.heads, entries}};
    expect(bias == one || bias == each, all, ", distance bias ", bias, ", expected ", one, " or ", each);
  }
  expect(attrs.window >= 0 && (attrs.window == 0 || attrs.causal), "a window of keys needs a causal mask");
  return {q, {q.dtype, {q.shape[0], attrs.heads, q.shape[1]}}};
}

std::vector<TensorType> infer_attention_grad(const InferArgs& args) {
  const auto& attrs = args.attrs.as<AttentionAttrs>();
  expect_inputs(args, attrs.operand_count(kAttentionGradFixed));
  expect(args.in[0] == args.in[3] && args.in[0] == args.in[5], "got q ", args.in[0], ", o ", args.in[3]);
  std::vector<TensorType> out{args.in[0], args.in[1], args.in[2]};
  if (attrs.has_bias) {
    const TensorType& bias = args.in[attrs.bias_at(kAttentionGradFixed)];
    expect(bias.shape.rank() == 2, "distance bias ", bias, " of each sample has no gradient");
    out.push_back(bias);
  }
  return out;
}

std::vector<Tensor> attention_gradient(const GradientArgs& args) {
  const std::vector<Tensor> in{args.in[0], args.in[1], args.in[2], args.out[0], args.out[1], args.out_grad[0]};
  std::vector<Tensor> gradients = args.add(kAttentionGrad, with_more(in, args.in.subspan(3)));
  const auto& attrs = args.attrs<AttentionAttrs>();
  const Tensor of_bias = gradients.back();
  gradients.resize(3);
  gradients.resize(args.in.size());  // lengths, starts and random have none
  if (attrs.has_bias) gradients[attrs.bias_at(kAttentionFixed)] = of_bias;
  return gradients;
}

double usual_scale(const At& q, int64_t heads) {
  return 1 / std::sqrt(static_cast<double>(q.value.dim(-1)) / static_cast<double>(heads));
}

// [B, T, H * D] -> [B, H, T, D]; key heads are repeated for the query heads that share them.
Tensor by_heads(Tensor x, int64_t heads, int64_t repeat) {
  const int64_t batch = x.dim(0), length = x.dim(1), size = x.dim(2) / heads;
  const Tensor apart = permute(reshape(x, {batch, length, heads, size}), {0, 2, 1, 3});
  if (repeat == 1) return apart;
  const Tensor ones = reshape(apart, {batch, heads, 1, length, size});
  const std::vector<Tensor> repeated(repeat, ones);
  return reshape(concat(repeated, 2), {batch, heads * repeat, length, size});
}

Tensor by_places(Tensor bias, int64_t queries, int64_t keys) {  // [..., H, Tq + Tk - 1] -> [..., H, Tq, Tk]
  const bool of_samples = bias.shape().rank() == 3;
  const std::vector<Tensor> rows = mapped(queries, [&](int64_t i) {
    const Tensor row = slice(bias, -1, queries - 1 - i, keys);
    return reshape(row, of_samples ? Shape{bias.dim(0), bias.dim(1), 1, keys} : Shape{bias.dim(0), 1, keys});
  });
  return joined(rows, of_samples ? 2 : 1);
}

// [B, H, Tq, Tk]: scale * q k^T + bias, -inf for invisible keys. `in`: the operands of a node.
Tensor masked_scores(
    const AttentionAttrs& attrs, std::span<const Tensor> in, double soft_cap = 0, Tensor score_bias = {}) {
  const Tensor q = by_heads(in[0], attrs.heads, 1);
  const Tensor k = by_heads(in[1], attrs.kv_heads, attrs.heads / attrs.kv_heads);
  const Tensor lengths = attrs.has_lengths ? in[3] : Tensor{};
  const Tensor starts = attrs.has_starts ? in[attrs.starts_at(kAttentionFixed)] : Tensor{};
  Tensor products = matmul(q, k, false, true) * (soft_cap > 0 ? attrs.scale / soft_cap : attrs.scale);
  if (soft_cap > 0) products = tanh(products) * soft_cap;
  if (attrs.has_bias) products = products + by_places(in[attrs.bias_at(kAttentionFixed)], q.dim(2), k.dim(2));
  if (score_bias.defined()) products = products + score_bias;
  return mask_scores(products, lengths, attrs.causal, starts, attrs.window);
}

Tensor weighted_values(const AttentionAttrs& attrs, std::span<const Tensor> in, Tensor scores) {
  const Tensor v = by_heads(in[2], attrs.kv_heads, attrs.heads / attrs.kv_heads);
  Tensor p = softmax(scores);
  if (attrs.dropout > 0) p = dropout(p, in.back(), attrs.dropout, attrs.dropout_site, DropoutLayout::kAttention);
  return reshape(permute(matmul(p, v), {0, 2, 1, 3}), in[0].shape());
}

std::vector<Tensor> decompose_attention(const DecomposeArgs& args) {
  const auto& attrs = args.attrs<AttentionAttrs>();
  const Tensor scores = masked_scores(attrs, args.in);
  const Tensor o = weighted_values(attrs, args.in, scores);
  return {o, reshape(log_sum_exp_last(scores), {args.in[0].dim(0), attrs.heads, args.in[0].dim(1)})};
}

std::vector<TensorType> infer_attention_mask(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ScoreMaskAttrs>();
  expect_inputs(args, 1u + attrs.has_lengths + attrs.has_starts);
  expect(args.in[0].shape.rank() == 4, "got ", args.in[0], ", expected [B, H, Tq, Tk]");
  return {args.in[0]};
}

// q k^T and p v; with a causal mask the visible part. The backward pass has five products, one the recomputed q k^T.
double attention_forward_flops(const FlopsArgs& args) {
  const Shape &q = args.in[0].shape, &k = args.in[1].shape;
  const double pairs = static_cast<double>(q[1]) * static_cast<double>(k[1]);
  const double visible = args.attrs<AttentionAttrs>().causal ? 0.5 * pairs : pairs;
  return 4.0 * static_cast<double>(q[0] * q[2]) * visible;
}

// Without a causal mask the number of queries alone chooses the kernel, and decoding does not change it.
Attrs with_independent_queries(const Attrs& old) {
  AttentionAttrs attrs = old.as<AttentionAttrs>();
  attrs.independent_queries = attrs.causal && attrs.dropout == 0;
  return attrs;
}

// Nodes of attention and of its gradient, as the kernels of kernels/attention take them.

template <class T> AttentionArgs head_sizes(const T& attrs, const TensorType& q, const TensorType& k) {
  AttentionArgs out{};
  out.batch = q.shape[0], out.query_length = q.shape[1], out.key_length = k.shape[1];
  out.query_heads = attrs.heads, out.kv_heads = attrs.kv_heads, out.head_size = q.shape[2] / attrs.heads;
  out.scale = static_cast<float>(attrs.scale);
  return out;
}

AttentionArgs attention_sizes(const AttentionAttrs& attrs, const TensorType& q, const TensorType& k) {
  AttentionArgs out = head_sizes(attrs, q, k);
  out.causal = attrs.causal, out.dropout = attrs.dropout;
  out.precision = attrs.precision, out.window = attrs.window, out.biased = attrs.has_bias;
  out.independent_queries = attrs.independent_queries, out.first_head = attrs.first_head;
  return out;
}

AttentionArgs attention_problem(const KernelArgs& args, size_t fixed = kAttentionFixed) {
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

AttentionRows attention_rows(const TensorView& x) { return {stored(x), x.strides[0], x.strides[1]}; }
MutableAttentionRows mutable_attention_rows(const TensorView& x) {
  return {mutable_stored(x), x.strides[0], x.strides[1]};
}

bool has_attention_tiles(const KernelQuery& query) {  // tiles hold heads of up to 256
  return f32_or_reduced(query) && query.in[0].shape[2] / query.attrs<AttentionAttrs>().heads <= 256;
}

AttentionArgs attention_sizes(const KernelQuery& query) {
  return attention_sizes(query.attrs<AttentionAttrs>(), query.in[0], query.in[1]);
}

template <auto kBytes> size_t attention_workspace(const KernelQuery& query) {
  return kBytes(attention_sizes(query), query.threads);
}

template <auto kAttend> void run_attention(const KernelArgs& args, const AttentionArgs& call, float* lse) {
  kAttend(call, attention_rows(args.in[0]), attention_rows(args.in[1]), attention_rows(args.in[2]),
      mutable_attention_rows(args.out[0]), lse, args.workspace, args.pool);
}

template <auto kAttend> void run_attention(const KernelArgs& args) {
  run_attention<kAttend>(args, attention_problem(args), args.out[1].as<float>());
}

bool supports_few(const KernelQuery& query) {
  return all_f32(query) && query.in[1] == query.in[2] && has_few_queries(attention_sizes(query));
}

AttentionArgs with_stored_dq(AttentionArgs args, const TensorType& dq) {
  args.dq_in_bf16 = dq.dtype == DType::kBF16;
  return args;
}

size_t attention_grad_workspace(const KernelQuery& query) {
  return attention_backward_workspace(with_stored_dq(attention_sizes(query), query.out[0]), query.threads);
}

void run_attention_grad(const KernelArgs& args) {
  const AttentionArgs call = with_stored_dq(attention_problem(args, kAttentionGradFixed), args.out[0].type);
  float* d_bias = call.biased ? args.out[3].as<float>() : nullptr;
  attention_backward(call, attention_rows(args.in[0]), attention_rows(args.in[1]), attention_rows(args.in[2]),
      attention_rows(args.in[3]), args.in[4].as<float>(), attention_rows(args.in[5]),
      mutable_attention_rows(args.out[0]), mutable_attention_rows(args.out[1]), mutable_attention_rows(args.out[2]),
      d_bias, args.workspace, args.pool);
}

void run_attention_mask(const KernelArgs& args) {
  const auto& attrs = args.attrs<ScoreMaskAttrs>();
  const Shape& shape = args.in[0].shape();
  const int64_t heads = shape[1], queries = shape[2], keys = shape[3];
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for (int64_t row = 0; row < shape[0] * heads * queries; ++row) {
      const int64_t sample = row / (heads * queries), query = row % queries;
      int64_t visible = attrs.has_lengths ? std::min<int64_t>(keys, args.in[1].as<int32_t>()[sample]) : keys;
      if (attrs.causal) visible = std::min(visible, query + keys - queries + 1);
      int64_t first = attrs.has_starts ? args.in.back().as<int32_t>()[sample * queries + query] : 0;
      if (attrs.window > 0) first = std::max(first, query + keys - queries - attrs.window + 1);
      for (int64_t j = 0; j < keys; ++j)
        args.out[0].as<T>()[row * keys + j] =
            first <= j && j < visible ? args.in[0].as<T>()[row * keys + j] : -std::numeric_limits<T>::infinity();
    }
  });
}

std::vector<TensorType> infer_cached_attention(const InferArgs& args) {
  const auto& attrs = args.attrs.as<CachedAttentionAttrs>();
  expect_inputs(args, kCachedStarts + (attrs.has_starts ? 1u : 0u));
  const std::string all = expect_heads(args, attrs, 1, "[N, 1, heads * size] and [S, T, heads * size]");
  const TensorType &q = args.in[0], indices{DType::kI32, {q.shape[0]}};
  const TensorType &rows = args.in[kCachedRows], &lengths = args.in[kCachedLengths];
  expect(rows == indices && lengths == indices, all, ", rows ", rows, ", lengths ", lengths);
  if (attrs.has_starts)
    expect(
        args.in[kCachedStarts] == TensorType{DType::kI32, {q.shape[0], 1}}, all, ", starts ", args.in[kCachedStarts]);
  return {q};
}

bool supports_cached_attention(const KernelQuery& query) {
  return all_f32(query) && query.in[0].shape[2] / query.attrs<CachedAttentionAttrs>().heads <= 256;
}

size_t cached_attention_workspace(const KernelQuery& query) {
  return attention_few_queries_workspace(
      head_sizes(query.attrs<CachedAttentionAttrs>(), query.in[0], query.in[1]), query.threads);
}

void check_cached_rows(const KernelArgs& args) {
  const int32_t *rows = args.in[kCachedRows].as<int32_t>(), *lengths = args.in[kCachedLengths].as<int32_t>();
  for (int64_t i = 0; i < args.in[0].shape()[0]; ++i)
    if (lengths[i] > 0 && (rows[i] < 0 || rows[i] >= args.in[1].shape()[0]))
      fail_internal("a token attends to a row beyond the cache");
}

void run_cached_attention(const KernelArgs& args) {
  check_cached_rows(args);
  const auto& attrs = args.attrs<CachedAttentionAttrs>();
  AttentionArgs call = head_sizes(attrs, args.in[0].type, args.in[1].type);
  call.soft_cap = static_cast<float>(attrs.soft_cap);
  call.key_lengths = args.in[kCachedLengths].as<int32_t>();
  if (attrs.has_starts) call.starts = args.in[kCachedStarts].as<int32_t>();
  call.key_rows = args.in[kCachedRows].as<int32_t>();
  run_attention<attention_few_queries>(args, call, nullptr);
}

void run_cached_attention_reference(const KernelArgs& args) {
  check_cached_rows(args);
  cached_attention_reference(args);
}

std::vector<TensorType> infer_distance_buckets(const InferArgs& args) {
  const auto& attrs = args.attrs.as<DistanceBucketsAttrs>();
  expect_inputs(args, attrs.has_position);
  if (attrs.has_position)
    expect(args.in[0].dtype == DType::kI32 && args.in[0].shape.rank() >= 1 && args.in[0].shape.rank() <= 2 &&
               args.in[0].shape[-1] == 1,
        "got position ", args.in[0], ", expected i32[1] or i32[R, 1]");
  expect(attrs.queries > 0 && attrs.keys > 0, "no queries or no keys");
  expect(attrs.buckets >= (attrs.bidirectional ? 4 : 2) && attrs.max_distance > attrs.buckets / 2, "got ",
      attrs.buckets, " buckets up to a distance of ", attrs.max_distance);
  const int64_t entries = attrs.queries + attrs.keys - 1;
  const bool rows = attrs.has_position && args.in[0].shape.rank() == 2;
  return {{DType::kI32, rows ? Shape{args.in[0].shape[0], entries} : Shape{entries}}};
}

void run_distance_buckets(const KernelArgs& args) {
  const auto& attrs = args.attrs<DistanceBucketsAttrs>();
  const int32_t* positions = attrs.has_position ? args.in[0].as<int32_t>() : nullptr;
  const int64_t entries = attrs.queries + attrs.keys - 1, rows = args.out[0].elements() / entries;
  int32_t* first = args.out[0].as<int32_t>();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t position = positions ? positions[row] : 0, shift = position - (positions ? positions[0] : 0);
    for (int64_t entry = 0; entry < entries; ++entry) {
      // Copies buckets of the first row's distances, without another logarithm.
      const bool known = row > 0 && entry >= shift && entry - shift < entries;
      first[row * entries + entry] = known ? first[entry - shift]
                                           : distance_bucket(entry - (attrs.queries - 1) - position, attrs.buckets,
                                                 attrs.max_distance, attrs.bidirectional);
    }
  }
}
}  // namespace

const OpDef kAttention{.name = "attention",
    .infer = infer_attention,
    .gradient = attention_gradient,
    .decompose = decompose_attention,
    .strided_inputs = 0b111,
    .strided_outputs = 0,
    .storage = reduced<0b111, 0b1>,
    .product = ProductKind::kAttention,
    .with_precision = set_precision<AttentionAttrs>,
    .with_independent_rows = with_independent_queries,
    .by_gpu_library = true,
    .flops = attention_forward_flops};
const OpDef kAttentionGrad{.name = "attention_grad",
    .infer = infer_attention_grad,
    .strided_inputs = 0b111,
    .strided_outputs = 0b111,
    .storage = reduced<0b101111, 0b111>,
    .product = ProductKind::kAttention,
    .with_precision = set_precision<AttentionAttrs>,
    .by_gpu_library = true,
    .flops = [](const FlopsArgs& args) { return 2 * attention_forward_flops(args); }};
// Masked scores are constants. Softmax gives them probability 0, so its gradient there is 0 already.
const OpDef kMaskScores{.name = "mask_scores", .infer = infer_attention_mask, .gradient = first_gradient};

const OpDef kCachedAttention{.name = "cached_attention",
    .infer = infer_cached_attention,
    .strided_inputs = 0b111,
    .flops = [](const FlopsArgs& args) {  // q k^T and p v, of all entries of a row of the cache
      return 4.0 * static_cast<double>(args.in[0].shape.elements()) * static_cast<double>(args.in[1].shape[1]);
    }};

Tensor attention_probabilities(const DecomposeArgs& args) {
  return softmax(masked_scores(args.attrs<AttentionAttrs>(), args.in));
}

Tensor attention(At q, Tensor k, Tensor v, const AttentionOptions& options) {
  AttentionAttrs attrs{
      .heads = options.heads, .kv_heads = options.kv_heads ? options.kv_heads : options.heads, .scale = options.scale};
  attrs.causal = options.causal;
  attrs.has_lengths = options.lengths.defined();
  attrs.has_starts = options.starts.defined();
  attrs.has_bias = options.distance_bias.defined();
  attrs.window = options.window;
  attrs.dropout = options.dropout;
  attrs.dropout_site = options.dropout_site;
  if (attrs.scale == 0) attrs.scale = usual_scale(q, attrs.heads);
  std::vector<Tensor> in = with_defined({q.value, k, v}, {options.lengths, options.starts, options.distance_bias});
  if (attrs.dropout > 0) in.push_back(options.random);
  if (options.soft_cap > 0 || options.score_bias.defined())
    return weighted_values(attrs, in, masked_scores(attrs, in, options.soft_cap, options.score_bias));
  return graph_of(q)->add(kAttention, in, attrs, q.where)[0];
}

Tensor mask_scores(At scores, Tensor lengths, bool causal, Tensor starts, int64_t window) {
  return op_result(kMaskScores, scores, with_defined({}, {lengths, starts}),
      ScoreMaskAttrs{causal, lengths.defined(), starts.defined(), window});
}

Tensor cached_attention(
    At q, Tensor k, Tensor v, Tensor rows, Tensor lengths, Tensor starts, CachedAttentionAttrs attrs) {
  if (attrs.kv_heads == 0) attrs.kv_heads = attrs.heads;
  if (attrs.scale == 0) attrs.scale = usual_scale(q, attrs.heads);
  attrs.has_starts = starts.defined();
  return op_result(kCachedAttention, q, with_defined({k, v, rows, lengths}, {starts}), attrs);
}

const OpDef kDistanceBuckets{.name = "distance_buckets", .infer = infer_distance_buckets, .gradient = no_gradient};

// In float32, like the models' training: rounding decides if a logarithm is a whole number.
int32_t distance_bucket(int64_t distance, int64_t buckets, int64_t max_distance, bool bidirectional) {
  int64_t first = 0;
  if (bidirectional) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = std::abs(distance);
  } else {
    distance = std::max<int64_t>(-distance, 0);
  }
  const int64_t exact = buckets / 2;
  if (distance < exact) return static_cast<int32_t>(first + distance);
  const float ratio = std::log(static_cast<float>(distance) / static_cast<float>(exact));
  const auto range = static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const auto wider = static_cast<int64_t>(ratio / range * static_cast<float>(buckets - exact));
  return static_cast<int32_t>(first + std::min(exact + wider, buckets - 1));
}

Tensor distance_buckets(Graph& graph, DistanceBucketsAttrs attrs, Tensor position, SourceLine where) {
  attrs.has_position = position.defined();
  return graph.add_one(kDistanceBuckets, with_defined({}, {position}), attrs, where);
}

LINNET_KERNELS(distance_buckets, {"reference", run_distance_buckets})
LINNET_KERNELS(mask_scores, {"reference", run_attention_mask})

LINNET_KERNELS(cached_attention,
    {"few_queries", run_cached_attention, supports_cached_attention, cached_attention_workspace},
    {"reference", run_cached_attention_reference})
LINNET_KERNELS(attention,
    {"few_queries", run_attention<attention_few_queries>, supports_few,
        attention_workspace<attention_few_queries_workspace>},
    {"flash", run_attention<attention_forward>, has_attention_tiles, attention_workspace<attention_forward_workspace>},
    {"reference", attention_reference})
LINNET_KERNELS(attention_grad, {"flash", run_attention_grad, has_attention_tiles, attention_grad_workspace},
    {"reference", attention_grad_reference})
}  // namespace linnet
