// Shuffled orders by a seed.
#pragma once
#include <utility>
#include <vector>
#include "base/hash.h"

namespace linnet {
// Fisher-Yates shuffle. The bias of a draw among `i` items is below i / 2^64.
template <class T> void shuffle(std::vector<T>& items, uint64_t seed, uint64_t stream) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u ^ (stream + 1) * 0xbf58476d1ce4e5b9u;
  for (size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[(static_cast<unsigned __int128>(next_splitmix64(state)) * i) >> 64]);
}
}  // namespace linnet
