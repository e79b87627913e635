// A fast 64-bit checksum against damaged files, not against forgery: four interleaved multiply-rotate lanes.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace linnet {

inline uint64_t mix_checksum(uint64_t state, uint64_t word) {
  return std::rotl((state ^ word) * 0x9E3779B97F4A7C15u, 29);  // odd multiplier: every step is a bijection of the state
}

// Continues `state` (anything for the first piece) by one piece of data and its length.
inline uint64_t data_checksum(uint64_t state, const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  uint64_t lanes[4] = {state, state ^ 1, state ^ 2, state ^ 3};
  size_t at = 0;
  for (; at + 32 <= size; at += 32) {
    uint64_t words[4];
    std::memcpy(words, bytes + at, 32);
    for (int lane = 0; lane < 4; ++lane) lanes[lane] = mix_checksum(lanes[lane], words[lane]);
  }
  if (at < size) {
    uint64_t words[4] = {};
    std::memcpy(words, bytes + at, size - at);
    for (int lane = 0; lane < 4; ++lane) lanes[lane] = mix_checksum(lanes[lane], words[lane]);
  }
  for (const uint64_t lane : lanes) state = mix_checksum(state, lane);
  return mix_checksum(state, size);
}

}  // namespace linnet
