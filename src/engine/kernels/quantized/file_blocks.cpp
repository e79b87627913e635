#include "engine/kernels/quantized/file_blocks.h"
#include <cstring>
#include "base/numbers.h"

namespace linnet {
namespace {
using Bytes = const std::byte*;

int at(Bytes bytes, int64_t i) { return std::to_integer<int>(bytes[i]); }

// Byte i holds the low bits of elements i and i + 16; the fifth bits of all are together.
void read_small(const BlockFormat& blocks, Bytes block, FileBlock& read) {
  uint32_t fifth = 0;
  Bytes codes = block + 2 * (1 + blocks.minimum);
  if (blocks.high_bits) std::memcpy(&fifth, codes, sizeof fifth), codes += sizeof fifth;
  for (int i = 0; i < 32; ++i)
    read.codes[i] =
        static_cast<int8_t>((at(codes, i % 16) >> (i / 16 * 4) & 15) | static_cast<int>(fifth >> i & 1) << 4);
  read.numbers[1] ^= 0x8000;  // added in files
}

// 6 bits each: 8 scales and 8 minimums in 12 bytes.
void read_integers(Bytes from, FileBlock& read) {
  for (int i = 0; i < 4; ++i) {
    read.integers[i][0] = static_cast<int8_t>(at(from, i) & 63);
    read.integers[i][1] = static_cast<int8_t>(at(from, i + 4) & 63);
    read.integers[i + 4][0] = static_cast<int8_t>((at(from, i + 8) & 15) | at(from, i) >> 6 << 4);
    read.integers[i + 4][1] = static_cast<int8_t>(at(from, i + 8) >> 4 | at(from, i + 4) >> 6 << 4);
  }
}

// Q4_K and Q5_K: 32 bytes hold 32 elements in their low bits and the next 32 in their high ones.
void read_k(const BlockFormat& blocks, Bytes block, FileBlock& read) {
  read_integers(block + 4, read);
  const Bytes high = block + 16, codes = high + 32 * blocks.high_bits;
  for (int i = 0; i < 256; ++i) {
    const int fifth = blocks.high_bits ? at(high, i % 32) >> (i / 32) & 1 : 0;
    read.codes[i] = static_cast<int8_t>((at(codes, i / 64 * 32 + i % 32) >> (i / 32 % 2 * 4) & 15) | fifth << 4);
  }
}

void read_q6_k(Bytes block, FileBlock& read) {
  const Bytes high = block + 128;
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, in = i % 32;
    read.codes[i] = static_cast<int8_t>((at(block, half * 64 + quarter % 2 * 32 + in) >> (quarter / 2 * 4) & 15) |
                                        (at(high, half * 32 + in) >> (quarter * 2) & 3) << 4);
  }
  std::memcpy(read.integers, block + 192, 16);
}

void read_numbers(WeightFormat format, Bytes block, uint16_t (&numbers)[2]) {
  numbers[1] = 0;
  std::memcpy(numbers, block + (format == WeightFormat::kQ6K ? 208 : 0), block_format(format).minimum ? 4 : 2);
}
}  // namespace

void read_file_block(WeightFormat format, Bytes block, FileBlock& read) {
  const BlockFormat blocks = block_format(format);
  read_numbers(format, block, read.numbers);
  switch (format) {
    case WeightFormat::kQ8_0: return void(std::memcpy(read.codes, block + 2, 32));
    case WeightFormat::kQ6K: return read_q6_k(block, read);
    default: blocks.unit == 1 ? read_small(blocks, block, read) : read_k(blocks, block, read);
  }
}

void file_block_values(WeightFormat format, Bytes block, float* values) {
  const BlockFormat blocks = block_format(format);
  FileBlock read;
  read_file_block(format, block, read);
  const float scale = half_to_float(read.numbers[0]), minimum = half_to_float(read.numbers[1]);
  const int length = 32 / blocks.parts;
  for (int i = 0; i < 32 * blocks.unit; ++i) {
    const int8_t* integers = read.integers[i / 32];
    const float of_part = blocks.unit == 1 ? scale : scale * static_cast<float>(integers[i % 32 / length]);
    values[i] = of_part * static_cast<float>(read.codes[i] - blocks.zero);
    if (blocks.minimum) values[i] -= blocks.unit == 1 ? minimum : minimum * static_cast<float>(integers[blocks.parts]);
  }
}

bool is_finite_row(WeightFormat format, Bytes row, int64_t columns) {
  const int64_t bytes = block_format(format).file_bytes();
  for (const Bytes end = row + file_row_bytes(format, columns); row < end; row += bytes) {
    uint16_t numbers[2];
    read_numbers(format, row, numbers);
    if ((numbers[0] & 0x7c00) == 0x7c00 || (numbers[1] & 0x7c00) == 0x7c00) return false;
  }
  return true;
}
}  // namespace linnet
