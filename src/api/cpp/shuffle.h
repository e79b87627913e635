// Orders that follow from a seed alone.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>
#include "base/hash.h"

namespace linnet {

// Random numbers of 64 bits.
class SplitMix {
 public:
  SplitMix(uint64_t seed, uint64_t stream) : state_(seed * 0x9e3779b97f4a7c15u ^ (stream + 1) * 0xbf58476d1ce4e5b9u) {}
  uint64_t next() { return next_splitmix64(state_); }
  // In [0, count); the bias is below count / 2^64.
  uint64_t below(uint64_t count) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * count) >> 64);
  }

 private:
  uint64_t state_;
};

// Fisher and Yates's shuffle.
template <class T>
void shuffle(std::vector<T>& items, uint64_t seed, uint64_t stream) {
  SplitMix random(seed, stream);
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

}  // namespace linnet
