// The random numbers of dropout: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011),
// a stateless function of (counter, key), so that every kernel, device and number of threads draws the same mask.
//
// The contract, the same everywhere:
//   key      = {low, high} 32 bits of a 64-bit dropout key (one per dropout site and step).
//   counter  = {block, c1, c2, c3}. One call gives four words, read as eight 16-bit values:
//              value i = (word[i / 2] >> (16 * (i % 2))) & 0xffff.
//   Element e of a row uses value e % 8 of block e / 8.
//     attention:  {key_index / 8, query_index, head, sample}
//     dense:      {i / 8, kDenseDropout, 0, sample}; i counts the elements of one sample (leading dimension)
//   An element is kept when its value >= threshold = round(p * 65536), at most 65535, and is then scaled by
//   65536 / (65536 - threshold): the expectation is exact for the threshold used.
#pragma once
#include <array>
#include <cstdint>
#include "base/numbers.h"
#include "base/thread_pool.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
constexpr uint32_t kDenseDropout = 0xD20;

// The reference, one counter at a time.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, uint64_t key);

// The key of a site at the step that `random` describes: i32 [4] = {seed low, seed high, step, micro-step}.
constexpr uint64_t dropout_key(const int32_t* random, uint64_t site) {
  const auto word = [&](int i) { return static_cast<uint64_t>(static_cast<uint32_t>(random[i])); };
  const uint64_t seed = word(0) | word(1) << 32, time = word(2) | word(3) << 32;
  return mix64(mix64(seed ^ site) + mix64(time + 0x9e3779b97f4a7c15u));
}

uint32_t dropout_threshold(float p);  // internal error unless p is in [0, 1)
float dropout_scale(float p);

// Whether element `index` of the row {c1, c2, c3} survives dropout with probability p. Slow, for references.
bool dropout_keeps(uint64_t key, int64_t index, uint32_t c1, uint32_t c2, uint32_t c3, float p);

// values[8 * i .. 8 * i + 7] = the 16-bit values of block first_block + i, i in [0, blocks); for philox-inl.h's test.
void philox_values16(
    uint64_t key, uint32_t first_block, int64_t blocks, uint32_t c1, uint32_t c2, uint32_t c3, uint16_t* values);

// Dropout over dense tensors.
//
// y = kept ? x * dropout_scale(p) : 0 for x [samples, elements_per_sample]; y may be x if both have one type. Element i
// of sample s is kept if value i % 8 of Philox block {i / 8, kDenseDropout, 0, first_sample + s} reaches
// dropout_threshold(p). A dropped NaN is 0, a kept one stays. The gradient is the same function of dy.
void dropout(int64_t samples, int64_t elements_per_sample, StoredFloats x, MutableStoredFloats y, float p, uint64_t key,
    ThreadPool& pool, uint32_t first_sample = 0);

// The same for x [samples, rows, count], columns [first, first + count) of a tensor with `all` of them, with that
// tensor's mask. `all` and `first` are multiples of 8.
struct DropoutColumns {
  int64_t all, first, count;
};
void dropout_of_columns(int64_t samples, int64_t elements_per_sample, const DropoutColumns& columns, StoredFloats x,
    MutableStoredFloats y, float p, uint64_t key, ThreadPool& pool);
}  // namespace linnet
