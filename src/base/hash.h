// Hash functions and random numbers, the same on every machine.
#pragma once
#include <cstdint>
#include <limits>
#include <string_view>

namespace linnet {
// The finalizer of SplitMix64 (Steele, Lea & Flood 2014): every input bit reaches every output bit.
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t next_splitmix64(uint64_t& state) { return mix64(state += 0x9e3779b97f4a7c15u); }

// A number of the sequence, uniform in [0, bound), without modulo bias. The standard distributions and std::shuffle
// differ between libraries.
constexpr uint64_t uniform_below(uint64_t bound, uint64_t& state) {
  const uint64_t limit = std::numeric_limits<uint64_t>::max() / bound * bound;
  uint64_t value = 0;
  do value = next_splitmix64(state);
  while (value >= limit);
  return value % bound;
}

// FNV-1a, 64 bits. Pass an earlier result as `hash` to continue it.
constexpr uint64_t fnv1a(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325u) {
  for (char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}
}  // namespace linnet
