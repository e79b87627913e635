// Images for tests, in MNIST's format.
#pragma once
#include <cstdint>
#include <string>

#include "integration/program.h"

namespace linnet::testing {

constexpr int kSize = 6;  // pixels a side

inline void append_big_endian(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 255);
}

// MNIST's four files: bright dots in the upper half are class 1, in the lower half class 0.
inline void write_images(const TemporaryFolder& folder, const std::string& prefix, int count) {
  std::string images("\0\0\x08\x03", 4), labels("\0\0\x08\x01", 4);
  append_big_endian(images, static_cast<uint32_t>(count));
  append_big_endian(images, kSize);
  append_big_endian(images, kSize);
  append_big_endian(labels, static_cast<uint32_t>(count));
  uint32_t random = 7;
  for (int image = 0; image < count; ++image) {
    const bool upper = (random >> 16) % 2 == 0;
    labels += upper ? '\1' : '\0';
    for (int i = 0; i < kSize * kSize; ++i) {
      random = random * 1664525 + 1013904223;
      const bool inside = (i < kSize * kSize / 2) == upper;
      images += static_cast<char>(inside && random >> 30 == 0 ? 230 : random >> 26);
    }
  }
  folder.write(prefix + "-images-idx3-ubyte", images);
  folder.write(prefix + "-labels-idx1-ubyte", labels);
}

}  // namespace linnet::testing
