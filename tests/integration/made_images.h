// Images for tests, in MNIST's format.
#pragma once
#include <cstdint>
#include <filesystem>
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

// A BMP file of 24 bits a pixel. `pixel(row, column)` is grey.
template <class Pixel>
void write_bmp(const TemporaryFolder& folder, const std::string& name, int width, int height, const Pixel& pixel) {
  const int stride = (3 * width + 3) / 4 * 4;
  std::string bytes = "BM";
  const auto append = [&](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> 8 * i & 255);
  };
  append(static_cast<uint32_t>(54 + stride * height), 4);
  append(0, 4), append(54, 4), append(40, 4);
  append(static_cast<uint32_t>(width), 4), append(static_cast<uint32_t>(height), 4);
  append(1, 2), append(24, 2);
  for (int i = 0; i < 6; ++i) append(0, 4);
  for (int row = height - 1; row >= 0; --row) {  // the lowest first
    for (int column = 0; column < width; ++column) bytes.append(3, static_cast<char>(pixel(row, column)));
    bytes.append(static_cast<size_t>(stride - 3 * width), '\0');
  }
  std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
  folder.write(name, bytes);
}

// Pictures of several sizes in FOLDER/pictures/lower and /upper: the half that the name says is bright.
inline void write_pictures(const TemporaryFolder& folder, int count) {
  uint32_t random = 7;
  for (int i = 0; i < count; ++i) {
    const bool upper = i % 2 == 0;
    const int width = 8 + i % 5, height = 10 + i % 3;
    const std::string name = std::string("pictures/") + (upper ? "upper/" : "lower/") + std::to_string(i) + ".bmp";
    write_bmp(folder, name, width, height, [&](int row, int) {
      random = random * 1664525 + 1013904223;
      return (row < height / 2) == upper ? 160 + (random >> 26) : random >> 26;
    });
  }
}
}  // namespace linnet::testing
