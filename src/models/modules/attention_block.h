// Multi-head attention with its projections: of a sequence to itself, and of one sequence to another.
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
  // Longrope (Ding et al. 2024): in the place of scaling.divisors where texts may be longer than the original length.
  std::vector<float> long_divisors = {};

  RopeScaling scaling_of(int64_t longest) const;  // texts of at most so many tokens
};

// Root-mean-square norms of queries and keys, before they are turned.
enum class QueryKeyNorms {
  kNone,
  kHeads,  // each head by itself, one weight for all
  kWhole,  // all heads together
};

struct AttentionConfig {
  int64_t width, heads;
  float dropout;                // of the attention probabilities
  Initializer projection = {};  // of the weights; empty: each of the stacked matrices by Glorot's rule
  Initializer output = {};
  double query_scale = 1;  // initial weights of the queries' projection are scaled by it
  int64_t kv_heads = 0;    // of keys and values, each for heads / kv_heads of the queries'; 0: as many
  int64_t head_size = 0;   // 0: width / heads
  double scale = 0;        // of scores; 0: 1 / sqrt(head_size)
  bool biases = true;      // of the projections to queries, keys and values
  bool output_bias = true;
  // Of causal attention to itself: a position sees the last `window` ones, its own included; 0: all.
  int64_t window = 0;
  QueryKeyNorms query_key_norms = QueryKeyNorms::kNone;
  NormKind norms = NormKind::kRms;  // of these
  double epsilon = 1e-6;            // of these norms
  double soft_cap = 0;              // of scores (ops/attention); 0: none
  // Of the fused projection; "in_proj_" gives PyTorch's names, in_proj_weight and in_proj_bias.
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
// Takes apart what a self-attention projects its input to, [B, T, query_width + 2 key_width]. Generation keeps keys and
// values here and returns those of earlier positions too (models/modules/key_value_cache.h).
using SplitProjection = std::function<QueriesKeysValues(const SelfAttention& attention, Tensor projected)>;
// Without earlier positions: the three parts as they are.
QueriesKeysValues split_projection(const AttentionConfig& config, Tensor projected);
// Keys and values of the memory, [B, S, key_width] each, for one layer's attention to it. A memory may serve several
// rows of queries that follow each other.
using MemoryKeys = std::function<std::pair<Tensor, Tensor>(CrossAttention& attention)>;

// What attention needs beside the states: which keys a query sees, and where keys and values come from (ops/attention).
struct AttentionContext {
  Tensor lengths = {};  // i32 [B]: so many keys count; undefined: all
  bool causal = false;
  Tensor starts = {};         // i32 [B, T]: the first key that a query sees, as in rows of packed documents
  Tensor positions = {};      // i32 [B, T], where they are rotary; undefined: 0, 1, 2, ... in every row
  int64_t longest = 0;        // the most tokens that a text may come to have; 0: T
  Tensor distance_bias = {};  // of scores: [heads, 2 T - 1], or [B, heads, S] of one query in each row
  // Embeddings of the distance from a key to a query, [2 T - 1, D], rising from 1 - T on and falling from T - 1 on.
  // With them attention is disentangled (He et al. 2021): scores also compare a query with its key's distance, and a
  // key with its query's. Projected as states are.
  Tensor rising = {}, falling = {};
  SplitProjection split = {};  // undefined: there are no earlier positions
  MemoryKeys memory = {};      // in a decoder's layer; undefined: projected from its memory
  Tensor memory_lengths = {};  // i32, of each memory: so many of its positions count
};

struct SelfAttention : Module {
  SelfAttention(Module* parent, std::string name, const AttentionConfig& config);

  // x [B, T, D] -> [B, T, D]. The same for training, for prompts and for decoding one token in each row.
  Tensor operator()(Tensor x, const AttentionContext& context);
  // x [B, T, D] attends to memory [B, S, D], of which the first lengths[b] rows count, by the same weights: queries are
  // made of x, keys and values of the memory. Nothing is rotated.
  Tensor cross(Tensor x, Tensor memory, Tensor lengths);

  AttentionConfig config;
  Linear in_proj, out_proj;                       // in_proj stacks query, key and value: [query_width + 2 key_width, D]
  std::optional<LayerNorm> query_norm, key_norm;  // with query_key_norms

 private:
  Tensor normalize_queries_keys(Tensor projected);
  // What a part of the fused projection makes of something else: its rows from `first` on.
  Tensor project_part(Tensor of, int64_t first, int64_t rows);
  Tensor distance_scores(Tensor queries, Tensor keys, const AttentionContext& context);  // [B, heads, T, T]
  // Queries and keys, normalized and turned to their positions, and values: [B, T, query_width + 2 key_width].
  Tensor project(Tensor x, const AttentionContext& context);
};

struct CrossAttention : Module {
  CrossAttention(Module* parent, std::string name, const AttentionConfig& config);

  // x [B, T, D] attends to context.memory, or to `memory` [B, S, D], which may be undefined then.
  Tensor operator()(Tensor x, const AttentionContext& context, Tensor memory);
  // Keys and values of the memory, side by side: [B, S, 2 key_width].
  Tensor project_memory(Tensor memory) { return kv_proj(memory); }

  AttentionConfig config;
  Linear q_proj, kv_proj, out_proj;
};

}  // namespace linnet
