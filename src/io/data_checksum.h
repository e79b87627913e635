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

// Continues a state (anything at first) by data that come piece by piece, and by their length.
class DataChecksum {
 public:
  static constexpr size_t kUnit = 32;  // bytes of which all pieces but the last are multiples

  explicit DataChecksum(uint64_t state) : state_(state), lanes_{state, state ^ 1, state ^ 2, state ^ 3} {}

  void add(const void* data, size_t size) {
    const char* bytes = static_cast<const char*>(data);
    size_t at = 0;
    for (; at + kUnit <= size; at += kUnit) mix(bytes + at, kUnit);
    if (at < size) mix(bytes + at, size - at);
    size_ += size;
  }

  uint64_t value() const {
    uint64_t state = state_;
    for (const uint64_t lane : lanes_) state = mix_checksum(state, lane);
    return mix_checksum(state, size_);
  }

 private:
  void mix(const char* bytes, size_t size) {
    uint64_t words[4] = {};
    std::memcpy(words, bytes, size);
    for (int lane = 0; lane < 4; ++lane) lanes_[lane] = mix_checksum(lanes_[lane], words[lane]);
  }

  uint64_t state_, lanes_[4];
  size_t size_ = 0;
};

// The same of data that are there as a whole.
inline uint64_t data_checksum(uint64_t state, const void* data, size_t size) {
  DataChecksum sum(state);
  sum.add(data, size);
  return sum.value();
}

}  // namespace linnet
