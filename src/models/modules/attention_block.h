// Multi-head attention with its projections, of a sequence to itself or to another one; and the options of layers.
#pragma once
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

enum class Activation { kRelu, kGelu, kGeluTanh, kSilu, kTanh };

// Which linear layers have a bias: attention's query, key and value projections, its output, and the feed-forward.
struct Biases {
  bool attention = true, output = true, feed_forward = true;
  std::optional<bool> last = {};  // of the feed-forward's last layer; empty: as feed_forward
  bool has_last() const { return last.value_or(feed_forward); }
};
constexpr Biases kNoBiases{false, false, false};

// Where norms stand; f is attention or feed-forward.
enum class NormPlace {
  kSum,             // norm(x + f(x)): post-LN
  kInput,           // x + f(norm(x)): pre-LN (Xiong et al. 2020)
  kResult,          // x + norm(f(x))
  kInputAndResult,  // x + norm(f(norm(x)))
};

// The options that may differ among layers of one model.
struct LayerKind {
  int64_t window = 0;  // keys are less than `window` positions before a query, in an encoder also behind it; 0: all
  std::optional<RotaryConfig> rotary = {};  // empty: no rotation
};

struct LayerConfig {
  int64_t width = 256, heads = 8, hidden = 1024;
  double dropout = 0.1;         // of each sub-layer's result
  double hidden_dropout = 0.1;  // of the feed-forward's hidden units
  NormPlace norm_place = NormPlace::kSum;
  bool attention_norm = true;  // with kInput; false: attention's input is not normalized
  bool parallel = false;       // x + attention(norm(x)) + feed-forward(norm(x)), each with its norm
  double residual_scale = 1;   // of the sub-layers' results
  Activation activation = Activation::kRelu;
  double epsilon = 1e-5;  // of the norms
  // Of weights; `residual`: of those whose results enter the residual stream. Empty: Glorot's rule.
  Initializer weights = {}, residual = {};
  std::optional<double> attention_dropout = {};  // of the attention probabilities; empty: as `dropout`
  NormKind norms = NormKind::kLayer;
  Biases biases = {};
  bool gated = false;        // f(x) = linear2(activation(linear1(x)) * linear3(x)) (Shazeer 2020)
  bool fused_gate = false;   // linear3 is the second half of linear1
  bool gate_second = false;  // of the fused layer, the second half is activated
  // > 0: this many gated experts replace the feed-forward; each token uses chosen_experts of them.
  int64_t experts = 0, chosen_experts = 0;
  bool normalized_choice = false;  // the chosen experts' weights are scaled to a sum of 1
  // Of attention.
  int64_t kv_heads = 0;   // of keys and values, each for heads / kv_heads of the queries'; 0: as many
  int64_t head_size = 0;  // 0: width / heads
  // In causal self-attention a position sees the last `window` ones, its own included; 0: all.
  int64_t window = 0;
  QueryKeyNorms query_key_norms = QueryKeyNorms::kNone;
  double attention_scale = 0;  // of scores; 0: 1 / sqrt(head_size)
  double query_scale = 1;      // initial weights of the queries' projection are scaled by it
  double soft_cap = 0;         // of scores (ops/attention); 0: none
  std::optional<RotaryConfig> rotary = {};

  int64_t size() const { return head_size > 0 ? head_size : width / heads; }
  int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t query_width() const { return heads * size(); }
  int64_t key_width() const { return key_heads() * size(); }
};

// The initializer, or if it is empty Glorot's rule for a weight that stacks `parts`.
inline Initializer or_glorot(const Initializer& initializer, int64_t parts = 1) {
  return initializer ? initializer : xavier_uniform(parts);
}

struct SelfAttention;
struct CrossAttention;

struct QueriesKeysValues {
  Tensor queries, keys, values;  // [B, T, query_width], and [B, S, key_width] of all positions that may be seen
  Tensor rows = {};              // i32 [B], with T = 1: the row of keys and values that each sample attends to
};
// Splits the projected input of self-attention [B, T, query_width + 2 key_width]. Generation stores keys and values
// here and also returns those of earlier positions (CacheSlots).
using SplitProjection = std::function<QueriesKeysValues(const SelfAttention& attention, Tensor projected)>;
QueriesKeysValues split_projection(const LayerConfig& config, Tensor projected);  // without earlier positions
std::pair<Tensor, Tensor> split_keys_values(Tensor both);                         // [B, S, 2 key_width]
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
  // `projection`: the name of the fused one; "in_proj_" gives PyTorch's names, in_proj_weight and in_proj_bias.
  SelfAttention(Module* parent, std::string name, const LayerConfig& config, const char* projection = "in_proj");

  // [B, T, D] -> [B, T, D], alike for training, prompts and decoding of one token in each row.
  Tensor operator()(Tensor x, const AttentionContext& context);
  // x [B, T, D] attends to memory [B, S, D], of which lengths[b] positions count, with the same weights. No rotation.
  Tensor cross(Tensor x, Tensor memory, Tensor lengths);

  LayerConfig config;
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
  CrossAttention(Module* parent, std::string name, const LayerConfig& config);

  // x [B, T, D] attends to context.memory if set, otherwise to `memory` [B, S, D].
  Tensor operator()(Tensor x, const AttentionContext& context, Tensor memory);
  Tensor project_memory(Tensor memory) { return kv_proj(memory); }  // [B, S, 2 key_width]

  LayerConfig config;
  Linear q_proj, kv_proj, out_proj;
};

// Keys and values that generation keeps: a state of the graph for each attention, with a row for each slot. They plug
// into AttentionContext, so models do not differ for generation.

// Where a prefill stores keys and values: a state with `slots` rows of max_length entries.
struct CacheSlots {
  int64_t slots, max_length;
  Tensor rows;  // i32 [B]: the slot of each row of the batch; negative: not kept
};

// One step of decoding R rows, a token each.
struct DecodeStep {
  Tensor position;  // i32 [1], or [R] if rows have different lengths: the index of the token
  Tensor lengths;   // i32 [R]: valid entries, position + 1
  Tensor starts;    // i32 [R, 1]: the first position that is seen; undefined: 0
  Tensor parents;   // i32 [R]: the row that each row continues
  int64_t max_length, beams;
  // i32 [R]: the row of the cache, of `slots`, that each token is written to and attends to; negative: none. Tokens at
  // consecutive positions may share a row; each sees those before it. Not with beams. Undefined: row r of R rows.
  Tensor cache_rows = {};
  int64_t slots = 0;
  // For attention to an encoder's memory: R / beams memories, each for `beams` rows.
  int64_t memory_length = 0;   // entries of the state of a memory
  Tensor memory_lengths = {};  // i32 [R / beams]: how many are valid

  Tensor positions() const;  // i32 [R, 1], or [1, 1]
};

// For causal prompts: stores row b in row cache.rows[b] of the state "cache.<path>" [slots, max_length, 2 key_width].
SplitProjection fill_cache(const CacheSlots& cache);
// For one token in each row: writes its keys and values into that state and returns the whole state.
SplitProjection step_cache(const DecodeStep& step);

// Stores keys and values of row b of the memory [B, S, D] in row cache.rows[b] of the state "memory.<path>"
// [slots, max_length, 2 key_width].
void keep_memory(CrossAttention& attention, Tensor memory, const CacheSlots& cache);
MemoryKeys kept_memory(Graph& graph, const DecodeStep& step);  // reads that state
}  // namespace linnet
