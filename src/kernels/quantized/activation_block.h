// Activations of 16 bits, for products with weights in blocks.
#pragma once
#include <cstdint>

namespace linnet {

// 32 neighbors of a row as -32767..32767 times a scale, in the two forms that
// kernels read. `pairs`: the codes that belong to one 32-bit word of the weight
// (4 columns of 8 bits, 8 of 4), in the order in which PairBlocks
// (block_tiles-inl.h) takes them from it. `high` and `low`: the bytes of code +
// 32768; with 4 bits the even columns of a word, then the odd ones.
struct alignas(64) ActivationBlock {
  int16_t pairs[32];
  uint8_t high[32], low[32];
  float scale;
  int32_t sum;  // of the codes
};

// Where column t of a word lies among its `pairs`: t and its partner half a
// word further are neighbors.
constexpr int pair_slot(int bits, int t) {
  const int half = 16 / bits;
  return t % half * 2 + t / half;
}
// And among its bytes.
constexpr int byte_slot(int bits, int t) { return bits == 8 ? t : t / 2 + t % 2 * 4; }

}  // namespace linnet
