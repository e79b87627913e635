// Keys and values that generation keeps: a state of the graph for each attention, with a row for each slot. The
// functions here say how an attention uses its state (AttentionContext); the models do not differ for it.
#pragma once
#include "models/modules/attention_block.h"

namespace linnet {

// Where a prefill leaves keys and values: a state with `slots` rows of max_length entries.
struct CacheSlots {
  int64_t slots, max_length;
  Tensor rows;  // i32 [B]: the slot of each row of the batch; negative: it is not kept
};

// One step of decoding R rows, a token each: where the keys and values of earlier positions are.
struct DecodeStep {
  Tensor position;  // i32 [1], or [R] where rows are of different lengths: the index of the token being fed
  Tensor lengths;   // i32 [R]: position + 1, how much of the cache is valid
  Tensor starts;    // i32 [R, 1]: the first position that is seen; undefined: 0
  Tensor parents;   // i32 [R]: the row each row goes on from
  int64_t max_length, beams;
  // Undefined: row r of the cache is of row r, and there are R of them. Or i32 [R]: the row of the cache that each
  // token is written to and attends to, of `slots` that there are; negative: none. Several tokens may be of one row, at
  // positions that follow each other: each sees those before it. Not with beams.
  Tensor cache_rows = {};
  int64_t slots = 0;
  // Of a decoder that attends to an encoder's memory: R / beams of them, each for `beams` rows.
  int64_t memory_length = 0;   // entries of the state that keeps keys and values of a memory
  Tensor memory_lengths = {};  // i32 [R / beams]: how many of them are valid

  Tensor positions() const;  // i32 [R, 1], or [1, 1]
};

// A prompt under a causal mask: leaves keys and values of row b in row cache.rows[b] of the state "cache.<path>"
// [slots, max_length, 2 key_width].
SplitProjection fill_cache(const CacheSlots& cache);
// One token in each row: writes its keys and values into that state and returns the whole state.
SplitProjection step_cache(const DecodeStep& step);

// Leaves keys and values of row b of the memory [B, S, D] in row cache.rows[b] of the state "memory.<path>"
// [slots, max_length, 2 key_width].
void keep_memory(CrossAttention& attention, Tensor memory, const CacheSlots& cache);
// Reads that state in a decoding step of `graph`.
MemoryKeys kept_memory(Graph& graph, const DecodeStep& step);

}  // namespace linnet
