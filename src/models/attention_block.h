// Multi-head attention with its projections: of a sequence to itself, and of one sequence to another.
#pragma once
#include <functional>

#include "nn/layers.h"
#include "ops/rope/rope.h"

namespace linnet {

// Rotary positions of queries and keys (ops/rope).
struct RotaryConfig {
  double theta = 10000;
  RopeScaling scaling = {};
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
  std::optional<RotaryConfig> rotary = {};

  int64_t size() const { return head_size > 0 ? head_size : width / heads; }
  int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t query_width() const { return heads * size(); }
  int64_t key_width() const { return key_heads() * size(); }
};

// Puts the keys and values of earlier positions before those of this call, [B, T, key_width] each, and returns both.
// For graphs that get earlier keys and values as inputs and give all of them as outputs, as ONNX decoders do.
using ExtendKeys = std::function<std::pair<Tensor, Tensor>(const Module& attention, Tensor keys, Tensor values)>;

struct CrossAttention;
// Keys and values of the memory, [B, S, key_width] each, for one layer's attention to it.
using MemoryKeys = std::function<std::pair<Tensor, Tensor>(CrossAttention& attention)>;

// What the positions of a batch of sequences see of them, and where they stand (ops/attention).
struct Sight {
  Tensor lengths = {};  // i32 [B]; undefined: every position counts
  bool causal = false;
  Tensor starts = {};         // i32 [B, T]: of documents packed into a row, which do not see each other
  Tensor positions = {};      // i32 [B, T], where they are rotary; undefined: 0, 1, 2, ... in every row
  Tensor distance_bias = {};  // [heads, 2 T - 1], of scores
  ExtendKeys extend = {};     // undefined: there are no earlier positions
  MemoryKeys memory = {};     // in a decoder's layer; undefined: projected from its memory
};

// Where a prefill leaves keys and values: a state of generation with `slots` rows of max_length entries.
struct CacheSlots {
  int64_t slots, max_length;
  Tensor rows;  // i32 [B]: the slot of each row of the batch; negative: it is not kept
};

// One step of decoding R rows: where the keys and values of earlier positions are.
struct DecodeStep {
  Tensor position;  // i32 [1], or [R] where rows are of different lengths: the index of the token being fed
  Tensor lengths;   // i32 [R]: position + 1, how much of the cache is valid
  Tensor starts;    // i32 [R, 1]: the first position that is seen; undefined: 0
  Tensor parents;   // i32 [R]: the row each row goes on from
  int64_t max_length, beams;
  // Of a decoder that attends to an encoder's memory: R / beams of them, each for `beams` rows.
  int64_t memory_length = 0;   // entries of the state that keeps keys and values of a memory
  Tensor memory_lengths = {};  // i32 [R / beams]: how many of them are valid
};

struct SelfAttention : Module {
  SelfAttention(Module* parent, std::string name, const AttentionConfig& config);

  // x [B, T, D] -> [B, T, D]
  Tensor operator()(Tensor x, const Sight& sight);
  // The same under a causal mask; leaves keys and values of row b in row cache.rows[b] of the state "cache.<path>"
  // [slots, max_length, 2 * key_width].
  Tensor prefill(Tensor x, const CacheSlots& cache);
  // x [R, 1, D] -> [R, 1, D]; appends its key and value to that state. distance_bias: [R, heads, max_length].
  Tensor step(Tensor x, const DecodeStep& step, Tensor distance_bias = {});

  AttentionConfig config;
  Linear in_proj, out_proj;  // in_proj stacks query, key and value: [query_width + 2 key_width, D]

 private:
  // Queries and keys turned to their positions, and values: [B, T, query_width + 2 key_width].
  Tensor project(Tensor x, Tensor positions);
};

struct CrossAttention : Module {
  CrossAttention(Module* parent, std::string name, const AttentionConfig& config);

  // x [B, T, D] attends to memory [B, S, D], of which the first lengths[b] rows count.
  Tensor operator()(Tensor x, Tensor memory, Tensor lengths);
  // With keys and values from elsewhere.
  Tensor operator()(Tensor x, const MemoryKeys& memory, Tensor lengths);
  // Keys and values of the memory, side by side: [B, S, 2 key_width].
  Tensor project_memory(Tensor memory) { return kv_proj(memory); }
  // Leaves keys and values of row b of the memory in row cache.rows[b] of the state "memory.<path>"
  // [slots, max_length, 2 key_width].
  void prefill(Tensor memory, const CacheSlots& cache);
  // x [R, 1, D]: `beams` rows that follow each other are queries to the same memory of that state.
  Tensor step(Tensor x, const DecodeStep& step);

  AttentionConfig config;
  Linear q_proj, kv_proj, out_proj;

 private:
  Tensor attend(Tensor q, Tensor keys, Tensor values, Tensor lengths);
  Tensor memory_state(Graph& graph, DType dtype, int64_t slots, int64_t max_length) const;
};

}  // namespace linnet
