// Attention as cuDNN's graphs: one fused kernel forward, one backward (with a pass before and after it).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include "engine/device/cuda/cudnn_graph.h"

namespace linnet {
// Elements between samples and between rows; a row is [heads, size], dense.
struct AttentionStrides {
  int64_t sample, row;
};

struct AttentionProblem {
  int64_t batch, heads, kv_heads, queries, keys, size;
  float scale;
  bool causal = false, lengths = false;
  double kept = 1, kept_scale = 1;  // dropout: the probability to stay and what the rest grows by
  AttentionStrides q{}, k{}, v{}, o{};
  AttentionStrides dq{}, dk{}, dv{};  // backward only; o's gradient has o's strides
  bool dropout() const { return kept < 1; }
  std::string text() const;  // as a key: everything it depends on
};

// The plan and its tensors, 0 if missing. q, k, v, o and gradients are bf16; stats and sums f32 [B, H, Tq, 1]; lengths
// i32 [B, 1, 1, 1]; seed and offset i64.
struct AttentionPlan {
  std::shared_ptr<CudnnPlan> plan;  // null: cuDNN has none
  std::string why;                  // then
  // Without a limit: how many kernels passed cuDNN's checks, and their largest workspace.
  size_t candidates = 0, workspace = 0;
  CudnnValue q = 0, k = 0, v = 0, o = 0, stats = 0, query_lengths = 0, key_lengths = 0, seed = 0, offset = 0;
  CudnnValue d_o = 0, dq = 0, dk = 0, dv = 0, sums = 0;
};

// `workspace`: the plan is the best of cuDNN's kernels that needs at most so many bytes. Without it none is.
AttentionPlan attention_forward_plan(
    const AttentionProblem& problem, const CudnnTarget& target, std::optional<size_t> workspace);
// Deterministic: cuDNN keeps the gradient of all scores in its workspace instead of adding to dq in any order.
AttentionPlan attention_backward_plan(
    const AttentionProblem& problem, const CudnnTarget& target, std::optional<size_t> workspace);
}  // namespace linnet
