// A fast 64-bit checksum against damage, not forgery: four interleaved multiply-rotate lanes.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace linnet {
inline uint64_t mix_checksum(uint64_t state, uint64_t word) {
  return std::rotl((state ^ word) * 0x9E3779B97F4A7C15u, 29);  // odd multiplier: every step is a bijection of the state
}

// Continues a state (any at first) by data in pieces, and by their length.
class DataChecksum {
 public:
  static constexpr size_t kUnit = 32;  // bytes; all pieces but the last are multiples

  explicit DataChecksum(uint64_t state) : state_(state), lanes_{state, state ^ 1, state ^ 2, state ^ 3} {}

  void add(const void* data, size_t size) {
    const char* bytes = static_cast<const char*>(data);
    const size_t whole = size / kUnit * kUnit;
    uint64_t a = lanes_[0], b = lanes_[1], c = lanes_[2], d = lanes_[3];  // in registers, however it is compiled
    for (size_t at = 0; at < whole; at += kUnit) {
      // Processors do not read ahead across pages of a file, which lie apart in memory.
      __builtin_prefetch(bytes + at + kAhead);
      a = mix_checksum(a, word(bytes + at));
      b = mix_checksum(b, word(bytes + at + 8));
      c = mix_checksum(c, word(bytes + at + 16));
      d = mix_checksum(d, word(bytes + at + 24));
    }
    lanes_[0] = a, lanes_[1] = b, lanes_[2] = c, lanes_[3] = d;
    if (whole < size) {
      char rest[kUnit] = {};
      std::memcpy(rest, bytes + whole, size - whole);
      for (size_t lane = 0; lane < 4; ++lane) lanes_[lane] = mix_checksum(lanes_[lane], word(rest + 8 * lane));
    }
    size_ += size;
  }

  uint64_t value() const {
    uint64_t state = state_;
    for (const uint64_t lane : lanes_) state = mix_checksum(state, lane);
    return mix_checksum(state, size_);
  }

 private:
  static constexpr size_t kAhead = 2048;  // bytes

  static uint64_t word(const char* bytes) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    return word;
  }

  uint64_t state_, lanes_[4];
  size_t size_ = 0;
};

inline uint64_t data_checksum(uint64_t state, const void* data, size_t size) {
  DataChecksum sum(state);
  sum.add(data, size);
  return sum.value();
}
}  // namespace linnet
