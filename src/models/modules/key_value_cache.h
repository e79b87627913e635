// Keys and values that generation keeps: a state of the graph for each attention, with a row for each slot. They plug
// into AttentionContext, so models do not differ for generation.
#pragma once
#include "models/modules/attention_block.h"

namespace linnet {

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
  // i32 [R]: the row of the cache, of `slots`, that each token is written to and attends to; negative: none. Undefined:
  // row r has row r of R. Tokens at consecutive positions may share a row; each sees those before it. Not with beams.
  Tensor cache_rows = {};
  int64_t slots = 0;
  // For attention to an encoder's memory: R / beams memories, each for `beams` rows.
  int64_t memory_length = 0;   // entries of the state of a memory
  Tensor memory_lengths = {};  // i32 [R / beams]: how many are valid

  Tensor positions() const;  // i32 [R, 1], or [1, 1]
};

// A prompt under a causal mask: stores row b in row cache.rows[b] of state "cache.<path>"
// [slots, max_length, 2 key_width].
SplitProjection fill_cache(const CacheSlots& cache);
// For one token in each row: writes its keys and values into that state and returns the whole state.
SplitProjection step_cache(const DecodeStep& step);

// Stores keys and values of row b of the memory [B, S, D] in row cache.rows[b] of the state "memory.<path>"
// [slots, max_length, 2 key_width].
void keep_memory(CrossAttention& attention, Tensor memory, const CacheSlots& cache);
MemoryKeys kept_memory(Graph& graph, const DecodeStep& step);  // reads that state

}  // namespace linnet
