// Activations of 16 bits, for products with weights in blocks.
#pragma once
#include <cstdint>

namespace linnet {

// 32 neighbors of a row as codes of 16 bits times a scale, in the form that the kernel reads: either `pairs`, the codes
// that belong to one 32-bit word of the weight (4 columns of 8 bits, 8 of 4), in the order in which PairBlocks
// (block_tiles-inl.h) takes them from it; or `high` and `low`, with code = 256 high + low; with 4 bits the even columns
// of a word, then the odd ones.
struct alignas(64) ActivationBlock {
  // Of the largest magnitude: 256 * 127 + 127, so that `high` and `low` fit.
  static constexpr int kMostCode = 32639;

  int16_t pairs[32];
  int8_t high[32], low[32];
  float scale, sum;  // the scale, and the sum of the numbers
  // The sum of the codes times what codes of weights are too large by, as the kernel reads them; of each half, where
  // these have a scale each, else of all.
  int32_t excess[2];
};

// Where column t of a word lies among its `pairs`: t and its partner half a
// word further are neighbors.
constexpr int pair_slot(int bits, int t) {
  const int half = 16 / bits;
  return t % half * 2 + t / half;
}

// The codes of a word's columns as `pairs`.
inline void store_pairs(int bits, const int32_t* codes, ActivationBlock& block) {
  const int in_word = 32 / bits;
  for (int word = 0; word < 32; word += in_word)
    for (int t = 0; t < in_word; ++t) block.pairs[word + pair_slot(bits, t)] = static_cast<int16_t>(codes[word + t]);
}

}  // namespace linnet
