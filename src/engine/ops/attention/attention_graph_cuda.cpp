#include "engine/ops/attention/attention_graph_cuda.h"
#include <algorithm>
#include <sstream>

namespace linnet {
namespace {
constexpr auto kFloat = CUDNN_DATA_FLOAT, kBf16 = CUDNN_DATA_BFLOAT16, kInt = CUDNN_DATA_INT32,
               kBool = CUDNN_DATA_BOOLEAN;

using Sizes = CudnnGraph::Sizes;

// Shared by forward and backward. Scores are [B, H, Tq, Tk]; cuDNN recognizes these operations in this order.
class Builder {
 public:
  explicit Builder(const AttentionProblem& problem) : p(problem) {}

  CudnnValue rows_tensor(int64_t heads, int64_t length, AttentionStrides strides) {
    return graph.tensor(kBf16, {p.batch, heads, length, p.size}, {strides.sample, p.size, strides.row, 1});
  }
  // The same memory as [B, heads, size, T].
  CudnnValue columns_tensor(int64_t heads, int64_t length, AttentionStrides strides) {
    return graph.tensor(kBf16, {p.batch, heads, p.size, length}, {strides.sample, p.size, 1, strides.row});
  }

  void optional_inputs() {
    const Sizes one{1, 1, 1, 1}, sample{p.batch, 1, 1, 1};
    if (p.lengths) {
      out.query_lengths = graph.tensor(kInt, sample, one);
      out.key_lengths = graph.tensor(kInt, sample, one);
    }
    if (p.dropout()) {
      out.seed = graph.tensor(CUDNN_DATA_INT64, one, one);
      out.offset = graph.tensor(CUDNN_DATA_INT64, one, one);
      kept = graph.between(kFloat, scores);
    }
  }

  CudnnValue with(cudnnPointwiseMode_t mode, CudnnValue x, CudnnValue b, cudnnDataType_t type = kFloat) {
    return graph.pointwise(mode, x, scores, {.b = b}, type);
  }
  CudnnValue index(CudnnValue x, int64_t axis) {
    return graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, x, scores, {.axis = axis, .compute = kInt}, kInt);
  }
  CudnnValue compare(cudnnPointwiseMode_t mode, CudnnValue x, CudnnValue b) {
    return graph.pointwise(mode, x, scores, {.b = b, .compute = kBool}, kBool);
  }
  CudnnValue where(CudnnValue condition, CudnnValue x) {  // -inf where false
    return graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, scores,
        {.b = graph.number(-std::numeric_limits<float>::infinity()), .t = condition});
  }

  // scale * q k^T, -inf for keys after the sample's length
  CudnnValue scores_of(bool pad) {
    const CudnnValue s = graph.between(kFloat, scores);
    graph.matmul(out.q, out.k, s, {.m = out.query_lengths, .n = out.key_lengths, .pad = pad && p.lengths});
    CudnnValue x = with(CUDNN_POINTWISE_MUL, s, graph.number(p.scale));
    if (p.lengths) {
      const CudnnValue i = index(x, 2), j = index(x, 3);
      const CudnnValue row = compare(CUDNN_POINTWISE_CMP_LT, i, out.query_lengths);
      const CudnnValue column = compare(CUDNN_POINTWISE_CMP_LT, j, out.key_lengths);
      x = where(compare(CUDNN_POINTWISE_LOGICAL_AND, row, column), x);
    }
    return x;
  }
  CudnnValue causal(CudnnValue x) {
    if (!p.causal) return x;
    const CudnnValue i = index(x, 2), j = index(x, 3);
    return where(compare(CUDNN_POINTWISE_CMP_GE, i, j), x);
  }

  AttentionPlan finish(const CudnnTarget& target, std::optional<size_t> workspace) {
    if (workspace) {
      out.plan = graph.plan(target, &out.why, *workspace);
      return std::move(out);
    }
    for (const CudnnGraph::Candidate& candidate : graph.candidates(target, &out.why))
      ++out.candidates, out.workspace = std::max(out.workspace, candidate.workspace);
    return std::move(out);
  }

  const AttentionProblem& p;
  CudnnGraph graph;
  const Sizes scores{p.batch, p.heads, p.queries, p.keys}, rows{p.batch, p.heads, p.queries, 1};
  const Sizes q_sizes{p.batch, p.heads, p.queries, p.size};
  CudnnValue kept = 0;
  AttentionPlan out;
};
}  // namespace

AttentionPlan attention_forward_plan(
    const AttentionProblem& p, const CudnnTarget& target, std::optional<size_t> workspace) {
  Builder b(p);
  CudnnGraph& graph = b.graph;
  b.out.q = b.rows_tensor(p.heads, p.queries, p.q);
  b.out.k = b.columns_tensor(p.kv_heads, p.keys, p.k);
  b.out.v = b.rows_tensor(p.kv_heads, p.keys, p.v);
  b.out.o = b.rows_tensor(p.heads, p.queries, p.o);
  b.out.stats = graph.tensor(kFloat, b.rows, CudnnGraph::dense_strides(b.rows));
  b.optional_inputs();
  const CudnnValue s = b.causal(b.scores_of(true));
  const CudnnValue top = graph.between(kFloat, b.rows), sum = graph.between(kFloat, b.rows);
  graph.reduction(CUDNN_REDUCE_TENSOR_MAX, s, top);
  const CudnnValue powers = graph.pointwise(CUDNN_POINTWISE_EXP, b.with(CUDNN_POINTWISE_SUB, s, top), b.scores, {});
  graph.reduction(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
  const CudnnValue log = graph.pointwise(CUDNN_POINTWISE_LOG, sum, b.rows, {});
  graph.pointwise(CUDNN_POINTWISE_ADD, top, b.out.stats, {.b = log});
  CudnnValue weights = b.with(CUDNN_POINTWISE_DIV, powers, sum, p.dropout() ? kFloat : kBf16);
  if (p.dropout()) {
    graph.random(p.kept, b.out.seed, b.out.offset, b.kept);
    weights = b.with(CUDNN_POINTWISE_MUL, weights, b.kept);
    weights = b.with(CUDNN_POINTWISE_MUL, weights, graph.number(static_cast<float>(p.kept_scale)), kBf16);
  }
  graph.matmul(weights, b.out.v, b.out.o, {.m = b.out.query_lengths, .k = b.out.key_lengths});
  return b.finish(target, workspace);
}

// With w = exp(s - stats), m = dropout's mask, f = its scale:
//   dv = (w m f)^T do;  ds = f w (m (do v^T) - sum(do o) / f) scale;  dk = ds^T q;  dq = ds k
AttentionPlan attention_backward_plan(
    const AttentionProblem& p, const CudnnTarget& target, std::optional<size_t> workspace) {
  Builder b(p);
  CudnnGraph& graph = b.graph;
  AttentionPlan& t = b.out;
  t.q = b.rows_tensor(p.heads, p.queries, p.q);
  t.k = b.columns_tensor(p.kv_heads, p.keys, p.k);
  t.v = b.columns_tensor(p.kv_heads, p.keys, p.v);
  t.o = b.rows_tensor(p.heads, p.queries, p.o);
  t.d_o = b.rows_tensor(p.heads, p.queries, p.o);
  t.stats = graph.tensor(kFloat, b.rows, CudnnGraph::dense_strides(b.rows));
  t.dq = b.rows_tensor(p.heads, p.queries, p.dq);
  t.dk = b.rows_tensor(p.kv_heads, p.keys, p.dk);
  t.dv = b.rows_tensor(p.kv_heads, p.keys, p.dv);
  t.sums = graph.tensor(kFloat, b.rows, CudnnGraph::dense_strides(b.rows));
  b.optional_inputs();
  if (p.dropout()) graph.random(p.kept, t.seed, t.offset, b.kept);
  const auto scale_of = [&](double value) { return graph.number(static_cast<float>(value)); };
  const CudnnValue products = graph.pointwise(CUDNN_POINTWISE_MUL, t.d_o, b.q_sizes, {.b = t.o});
  const CudnnValue sum = graph.between(kFloat, b.rows);
  graph.reduction(CUDNN_REDUCE_TENSOR_ADD, products, sum);
  graph.pointwise(CUDNN_POINTWISE_MUL, sum, t.sums, {.b = scale_of(p.dropout() ? 1 / p.kept_scale : 1)});
  CudnnValue x = b.with(CUDNN_POINTWISE_SUB, b.scores_of(false), t.stats);
  const CudnnValue weights = graph.pointwise(CUDNN_POINTWISE_EXP, b.causal(x), b.scores, {});
  x = weights;
  if (p.dropout()) {
    x = b.with(CUDNN_POINTWISE_MUL, x, b.kept);
    x = b.with(CUDNN_POINTWISE_MUL, x, scale_of(p.kept_scale));
  }
  const Sizes turned{p.batch, p.heads, p.keys, p.queries};  // transposed
  const Sizes turned_strides{p.heads * p.queries * p.keys, p.queries * p.keys, 1, p.keys};
  const auto transposed = [&](CudnnValue from) {
    const CudnnValue to = graph.between(kBf16, turned, turned_strides);
    graph.reshape(from, to);
    return to;
  };
  const Sizes all_heads{p.batch, p.heads, p.keys, p.size};
  // left [B, H, Tk, Tq] right [B, H, Tq, size]; heads that share keys are summed.
  const auto of_keys = [&](CudnnValue left, CudnnValue right, CudnnValue to) {
    const CudnnGraph::Overrides lengths{.m = t.key_lengths, .k = t.query_lengths};
    if (p.heads == p.kv_heads) return graph.matmul(left, right, to, lengths);
    const CudnnValue each = graph.between(kBf16, all_heads);
    graph.matmul(left, right, each, lengths);
    graph.reduction(CUDNN_REDUCE_TENSOR_ADD, each, to);
  };
  of_keys(transposed(x), t.d_o, t.dv);
  x = graph.between(kFloat, b.scores);
  graph.matmul(t.d_o, t.v, x, {.m = t.query_lengths, .n = t.key_lengths});
  if (p.dropout()) x = b.with(CUDNN_POINTWISE_MUL, x, b.kept);
  x = b.with(CUDNN_POINTWISE_SUB, x, t.sums);
  x = b.with(CUDNN_POINTWISE_MUL, x, weights);
  if (p.dropout()) x = b.with(CUDNN_POINTWISE_MUL, x, scale_of(p.kept_scale));
  const CudnnValue ds = b.with(CUDNN_POINTWISE_MUL, x, scale_of(p.scale));
  of_keys(transposed(ds), t.q, t.dk);
  const CudnnValue k = graph.between(kBf16, {p.batch, p.kv_heads, p.keys, p.size}, {p.k.sample, p.size, p.k.row, 1});
  graph.reshape(t.k, k);
  graph.matmul(ds, k, t.dq, {.m = t.query_lengths, .k = t.key_lengths});
  return b.finish(target, workspace);
}

std::string AttentionProblem::text() const {
  std::ostringstream text;
  for (const int64_t value : {batch, heads, kv_heads, queries, keys, size}) text << value << ' ';
  text << scale << ' ' << causal << lengths << ' ' << kept;
  for (const AttentionStrides& s : {q, k, v, o, dq, dk, dv}) text << ' ' << s.sample << ':' << s.row;
  return text.str();
}
}  // namespace linnet
