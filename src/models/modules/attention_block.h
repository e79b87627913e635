// Multi-head attention with its projections, of a sequence to itself or to another one.
#pragma once
#include <functional>
#include "engine/ops/rope/rope.h"
#include "models/nn/layers.h"

namespace linnet {

// Rotary positions of queries and keys (ops/rope).
struct RotaryConfig {
  double theta = 10000;
  double share = 1;  // of each head's elements, the first ones; the others do not turn
  RopeScaling scaling = {};
  // Longrope (Ding et al. 2024): replaces scaling.divisors for texts that may exceed the original length.
  std::vector<float> long_divisors = {};

  RopeScaling scaling_of(int64_t longest) const;  // texts of at most so many tokens
};

// Root-mean-square norms of queries and keys, before rotation.
enum class QueryKeyNorms {
  kNone,
  kHeads,  // each head by itself, one weight for all
  kWhole,  // all heads together
};

struct AttentionConfig {
  int64_t width, heads;
  float dropout;                // of the attention probabilities
  Initializer projection = {};  // of weights; empty: Glorot's rule for each stacked matrix
  Initializer output = {};
  double query_scale = 1;  // initial weights of the queries' projection are scaled by it
  int64_t kv_heads = 0;    // 0: as many as heads
  int64_t head_size = 0;   // 0: width / heads
  double scale = 0;        // of scores; 0: 1 / sqrt(head_size)
  bool biases = true;      // of the projections to queries, keys and values
  bool output_bias = true;
  // In causal self-attention a position sees the last `window` ones, its own included; 0: all.
  int64_t window = 0;
  QueryKeyNorms query_key_norms = QueryKeyNorms::kNone;
  NormKind norms = NormKind::kRms;  // of the query and key norms
  double epsilon = 1e-6;            // of the query and key norms
  double soft_cap = 0;              // of scores (ops/attention); 0: none
  // Name of the fused projection; "in_proj_" gives PyTorch's names, in_proj_weight and in_proj_bias.
  const char* projection_name = "in_proj";
  std::optional<RotaryConfig> rotary = {};

  int64_t size() const { return head_size > 0 ? head_size : width / heads; }
  int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t query_width() const { return heads * size(); }
  int64_t key_width() const { return key_heads() * size(); }
};

struct SelfAttention;
struct CrossAttention;

struct QueriesKeysValues {
  Tensor queries, keys, values;  // [B, T, query_width], and [B, S, key_width] of all positions that may be seen
  Tensor rows = {};              // i32 [B], with T = 1: the row of keys and values that each sample attends to
};
// Splits the projected input of self-attention [B, T, query_width + 2 key_width]. Generation stores keys and values
// here and also returns those of earlier positions (models/modules/key_value_cache.h).
using SplitProjection = std::function<QueriesKeysValues(const SelfAttention& attention, Tensor projected)>;
QueriesKeysValues split_projection(const AttentionConfig& config, Tensor projected);  // without earlier positions
// Keys and values of the memory, [B, S, key_width] each, for one layer. Consecutive rows of queries may share a memory.
using MemoryKeys = std::function<std::pair<Tensor, Tensor>(CrossAttention& attention)>;

// What attention needs beside the states: the mask, and where keys and values come from (ops/attention).
struct AttentionContext {
  Tensor lengths = {};  // i32 [B]: number of valid keys; undefined: all
  bool causal = false;
  Tensor starts = {};         // i32 [B, T]: the first key that a query sees, as in rows of packed documents
  Tensor positions = {};      // i32 [B, T], for rotary positions; undefined: 0, 1, 2, ... in every row
  int64_t longest = 0;        // the greatest length that a text may reach; 0: T
  Tensor distance_bias = {};  // of scores: [heads, 2 T - 1], or [B, heads, S] of one query in each row
  // Embeddings of the distance from key to query, [2 T - 1, D], ascending from 1 - T and descending from T - 1. With
  // them attention is disentangled (He et al. 2021): scores also compare query with distance and distance with key.
  Tensor rising = {}, falling = {};
  SplitProjection split = {};  // undefined: no earlier positions
  MemoryKeys memory = {};      // in a decoder's layer; undefined: projected from its memory
  Tensor memory_lengths = {};  // i32, number of valid positions of each memory
};

struct SelfAttention : Module {
  SelfAttention(Module* parent, std::string name, const AttentionConfig& config);

  // [B, T, D] -> [B, T, D], alike for training, prompts and decoding of one token in each row.
  Tensor operator()(Tensor x, const AttentionContext& context);
  // x [B, T, D] attends to memory [B, S, D], of which lengths[b] positions count, with the same weights. No rotation.
  Tensor cross(Tensor x, Tensor memory, Tensor lengths);

  AttentionConfig config;
  Linear in_proj, out_proj;                       // in_proj stacks query, key and value: [query_width + 2 key_width, D]
  std::optional<LayerNorm> query_norm, key_norm;  // with query_key_norms

 private:
  Tensor normalize_queries_keys(Tensor projected);
  // Projects `of` with rows [first, first + rows) of the fused weight.
  Tensor project_part(Tensor of, int64_t first, int64_t rows);
  Tensor distance_scores(Tensor queries, Tensor keys, const AttentionContext& context);  // [B, heads, T, T]
  // Queries and keys, normalized and rotated, and values: [B, T, query_width + 2 key_width].
  Tensor project(Tensor x, const AttentionContext& context);
};

struct CrossAttention : Module {
  CrossAttention(Module* parent, std::string name, const AttentionConfig& config);

  // x [B, T, D] attends to context.memory if set, otherwise to `memory` [B, S, D].
  Tensor operator()(Tensor x, const AttentionContext& context, Tensor memory);
  Tensor project_memory(Tensor memory) { return kv_proj(memory); }  // [B, S, 2 key_width]

  AttentionConfig config;
  Linear q_proj, kv_proj, out_proj;
};

}  // namespace linnet
