// Dropout's random numbers on the device, identical to engine/kernels/random/philox.h.
#pragma once
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/random/philox.h"

namespace linnet {
// Four words of one counter: eight 16-bit values.
LINNET_DEVICE uint4 philox(uint4 counter, uint64_t key) {
  unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const unsigned high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
    const unsigned high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
    counter = {high1 ^ counter.y ^ k0, low1, high0 ^ counter.w ^ k1, low0};
  }
  return counter;
}

LINNET_DEVICE unsigned philox_value(const uint4& words, int i) {
  const unsigned word = i < 4 ? (i < 2 ? words.x : words.y) : (i < 6 ? words.z : words.w);
  return word >> (16 * (i % 2)) & 0xffff;
}

struct DropoutMask {
  uint64_t key;
  unsigned threshold;
  float scale;
  // The factor of element `index` of the dense row of `sample`: 0 or scale.
  LINNET_DEVICE float dense(int64_t index, unsigned sample) const {
    const uint4 words = philox({static_cast<unsigned>(index / 8), kDenseDropout, 0, sample}, key);
    return philox_value(words, static_cast<int>(index % 8)) >= threshold ? scale : 0;
  }
};

// A kernel's argument: the device computes the key from the step's counter.
struct DropoutSite {
  const int32_t* random = nullptr;  // null: no dropout
  uint64_t site = 0;
  unsigned threshold = 0;
  float scale = 1;
  LINNET_DEVICE DropoutMask mask() const { return {dropout_key(random, site), threshold, scale}; }
};
inline DropoutSite dropout_site_of(const int32_t* random, uint64_t site, float probability) {
  return {random, site, dropout_threshold(probability), dropout_scale(probability)};
}
}  // namespace linnet
