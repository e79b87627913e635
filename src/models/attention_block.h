// Multi-head attention with its projections: of a sequence to itself, and of one sequence to another.
#pragma once
#include "nn/layers.h"

namespace linnet {

struct AttentionConfig {
  int64_t width, heads;
  float dropout;                // of the attention probabilities
  Initializer projection = {};  // of the weights; empty: each of the stacked matrices by Glorot's rule
  Initializer output = {};
};

// The key and value cache of generation: rows = sentences * beams, each of max_length entries.
struct CacheShape {
  int64_t max_length, beams = 1;
};

// One beam-search or greedy step: where the keys and values of earlier positions are.
struct DecodeStep {
  Tensor position;  // i32 [1], or [R] where rows are of different lengths: the index of the token being fed
  Tensor lengths;   // i32 [R]: position + 1, how much of the cache is valid
  Tensor parents;   // i32 [R]: the row each row goes on from
  int64_t max_length, beams;
};

struct SelfAttention : Module {
  SelfAttention(Module* parent, std::string name, const AttentionConfig& config);

  // x [B, T, D], lengths i32 [B], starts i32 [B, T] (see ops/attention; either may be undefined) -> [B, T, D]
  Tensor operator()(Tensor x, Tensor lengths, bool causal, Tensor starts = {});
  // The same under a causal mask; leaves keys and values of row b in row b * beams of the state "cache.<path>"
  // [B * beams, max_length, 2 D].
  Tensor prefill(Tensor x, const CacheShape& cache);
  // x [R, 1, D] -> [R, 1, D]; appends its key and value to that state.
  Tensor step(Tensor x, const DecodeStep& step);

  AttentionConfig config;
  Linear in_proj, out_proj;  // in_proj stacks query, key and value: [3 D, D]
};

struct CrossAttention : Module {
  CrossAttention(Module* parent, std::string name, const AttentionConfig& config);

  // x [B, T, D] attends to memory [B, S, D], of which the first lengths[b] rows count.
  Tensor operator()(Tensor x, Tensor memory, Tensor lengths);
  // Keys and values of the memory, kept for all steps: [B, S, 2 D].
  Tensor project_memory(Tensor memory) { return kv_proj(memory); }
  // x [B * beams, 1, D]: the beams of a sentence are queries to the same memory.
  Tensor step(Tensor x, Tensor keys_values, Tensor lengths, int64_t beams);

  AttentionConfig config;
  Linear q_proj, kv_proj, out_proj;

 private:
  Tensor attend(Tensor q, Tensor keys_values, Tensor lengths);
};

}  // namespace linnet
