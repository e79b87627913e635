#include "engine/kernels/quantized/packed_weight.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include "base/error.h"
#include "base/functions.h"
#include "base/thread_pool.h"
#include "engine/kernels/precision.h"
#include "engine/kernels/quantized/products.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
namespace {
constexpr int64_t kPanel = PackedShape::kPanel, kBlock = PackedShape::kBlock;
constexpr int kMostPair = 128;  // see the header
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Values of smaller rows and blocks are negligible, and 127 / value would not be finite.
constexpr float kSmallest = 1e-30F;

float largest_magnitude(const float* w, int64_t count) {
  int32_t most = 0;  // as integers magnitudes have the order of their values, NaN above infinity
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::bit_cast<int32_t>(w[i]) & 0x7fffffff);
  return std::bit_cast<float>(most);
}

// The next number of bf16 that is no smaller.
float bf16_above(float x) { return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0xffffU) & 0xffff0000U); }
uint16_t bf16_bits(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }
float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// The high bits of a column: the byte behind a row's first word of them, and the bit in it.
std::pair<int64_t, int> high_bits_of(int high_bits, int64_t column) {
  const int64_t bit = (column / 8 * 2 + column % 2) * high_bits;
  return {bit / 8 * 64 + column % 8 / 2, static_cast<int>(bit % 8)};
}

constexpr int64_t kPairs = 32;  // looked at together

// The largest |codes[2i] + codes[2i + 1]| of kPairs pairs, written for vectorization with 16-bit lanes.
int most_of_pairs(const int8_t* codes) {
  uint16_t pairs[kPairs];
  std::memcpy(pairs, codes, sizeof pairs);
  int16_t most = 0;
  for (const uint16_t pair : pairs) {
    const auto low = static_cast<int16_t>(static_cast<int16_t>(pair << 8) >> 8);
    const auto sum = static_cast<int16_t>(low + (static_cast<int16_t>(pair) >> 8));
    most = std::max(most, std::max(sum, static_cast<int16_t>(-sum)));
  }
  return most;
}

// Reduces neighbors of one sign beyond the bound by single steps, where rounding went furthest outward first. Returns
// the growth of the sum of squared errors, in squared steps; 0 if all fit.
float fit_neighbors(const float* w, int64_t count, float scale, int8_t* codes) {
  const float inverse = 1 / scale;
  float grown = 0;
  for (int64_t begin = 0; begin < count; begin += 2 * kPairs) {
    const int64_t end = std::min(begin + 2 * kPairs, count);
    if (end - begin == 2 * kPairs && most_of_pairs(codes + begin) <= kMostPair) continue;  // as a rule
    for (int64_t i = begin; i + 1 < end; i += 2) {
      if (std::abs(codes[i] + codes[i + 1]) <= kMostPair) continue;  // of different signs, they always fit
      const int sign = codes[i] < 0 ? -1 : 1;
      const auto outward = [&](int64_t at) {
        return (static_cast<float>(codes[at]) - w[at] * inverse) * static_cast<float>(sign);
      };
      const auto error = [&] { return outward(i) * outward(i) + outward(i + 1) * outward(i + 1); };
      const float before = error();
      while (std::abs(codes[i] + codes[i + 1]) > kMostPair)
        codes[outward(i) >= outward(i + 1) ? i : i + 1] -= static_cast<int8_t>(sign);
      grown += error() - before;
    }
  }
  return grown;
}

// Searches the step with the least error: a larger step leaves fewer neighbors beyond the bound, but is coarser.
void quantize_channel(const float* w, int64_t count, float top, int8_t* codes, float* scale) {
  constexpr float kStep = 0.05F;
  constexpr int kMostSteps = 22;  // up to a factor of 2.1, where neighbors of the largest value fit
  std::vector<int8_t> tried(count);
  float best = std::numeric_limits<float>::infinity();
  for (int step = 0, worse = 0; step < kMostSteps && worse < 2; ++step) {
    const float factor = 1 + kStep * static_cast<float>(step), candidate = top / 127 * factor;
    const float rounded = round_codes(w, count, candidate, -127, 127, tried.data());
    const float grown = fit_neighbors(w, count, candidate, tried.data());
    const float error = (rounded + grown) * factor * factor;
    if (error < best) {
      best = error, *scale = candidate, worse = 0;
      std::copy(tried.begin(), tried.end(), codes);
    } else {
      ++worse;
    }
    if (grown == 0) break;
  }
}

void quantize_block8(const float* w, int64_t count, float top, int8_t* codes, float* scale) {
  // Numbers that were rounded before stay as they are, also where the largest has the code 126.
  const float before = top / 126;
  *scale = bf16_above(top / 127);
  if (before == bf16_above(before) && round_codes(w, count, before, -127, 127, codes) < 1e-6F) *scale = before;
  else round_codes(w, count, *scale, -127, 127, codes);
}

// Searches the step with the least error, with the wider side (-8) for either sign: four bits are few.
void quantize_block4(const float* w, int64_t count, float top, int8_t* codes, float* scale) {
  constexpr float kCandidates[] = {7, 7.5F, 8, 8.5F, 9};
  int8_t tried[kBlock];
  float best = std::numeric_limits<float>::infinity();
  for (const float steps : kCandidates)
    for (const float sign : {1.0F, -1.0F}) {
      const float candidate = bf16_above(top / steps) * sign;
      const float error = round_codes(w, count, candidate, -8, 7, tried) / (steps * steps);
      if (error >= best) continue;
      best = error, *scale = candidate;
      std::copy_n(tried, count, codes);
    }
}

// The inverse of block_codes(); high bits are added to zeros.
void pack_codes(const BlockFormat& blocks, const int8_t* codes, int64_t row, std::byte* block) {
  std::byte* words = block + row * 4;
  if (blocks.bits == 8) {
    for (int64_t group = 0; group < kBlock / 4; ++group) std::memcpy(words + group * kPanel * 4, codes + group * 4, 4);
    return;
  }
  for (int64_t group = 0; group < kBlock / 8; ++group) {
    uint32_t word = 0;
    for (int64_t j = 0; j < 8; ++j) word |= (static_cast<uint32_t>(codes[group * 8 + j]) & 15U) << (4 * j);
    std::memcpy(words + group * kPanel * 4, &word, sizeof word);
  }
  for (int64_t i = 0; blocks.high_bits > 0 && i < kBlock; ++i) {
    const auto [at, shift] = high_bits_of(blocks.high_bits, i);
    words[4 * 64 + at] |= static_cast<std::byte>(codes[i] >> 4 << shift);
  }
}

int64_t padded_columns(const PackedShape& shape) { return shape.blocks() * kBlock; }

// A panel of a matrix in row order. `codes`: of a row.
void quantize_rows(const PackedShape& shape, const float* w, int64_t count, float most, int8_t* codes, int8_t* panel,
    float* scales, int32_t* sums) {
  std::fill(codes + shape.columns, codes + padded_columns(shape), static_cast<int8_t>(0));
  for (int64_t row = 0; row < kPanel; ++row, w += shape.columns) {
    const float top = row < count ? largest_magnitude(w, shape.columns) : 0;
    const bool is_number = top <= std::numeric_limits<float>::max();
    scales[row] = !is_number ? kNan : top < kSmallest ? 0 : top * (1 / most);
    if (is_number && top >= kSmallest) round_codes(w, shape.columns, scales[row], -most, most, codes);
    else std::fill_n(codes, shape.columns, static_cast<int8_t>(0));
    sums[row] = sum_of<int32_t>(shape.columns, [&](int64_t i) { return codes[i]; });
    for (int64_t i = 0; i < padded_columns(shape); i += 4) std::memcpy(panel + i * kPanel + 4 * row, codes + i, 4);
  }
}
}  // namespace

size_t PackedShape::bytes() const {
  if (tail_rows > 0) return head().bytes() + tail().bytes();
  if (format == WeightFormat::kBf16)
    return round_up(static_cast<size_t>(rows * columns) * sizeof(uint16_t), size_t{64});
  const int64_t scales = format == WeightFormat::kInt8
                             ? panels() * kPanel * static_cast<int64_t>(sizeof(float) + sizeof(int32_t))
                             : panels() * panel_scale_bytes();
  return round_up(scales_offset() + static_cast<size_t>(scales), size_t{64});
}

float block_number(const BlockFormat& blocks, const std::byte* scales, int64_t block, int64_t row, int64_t part) {
  const std::byte* unit = scales + block / blocks.unit * blocks.scale_bytes();
  const auto bits = number_at<uint16_t>(unit + (part == blocks.parts ? 32 : 0) + row * 2);
  const float number = blocks.bf16 ? from_bf16(bits) : half_to_float(bits);
  if (blocks.unit == 1) return number;
  const int64_t of_block = block % blocks.unit * (blocks.parts + blocks.minimum) + part;
  return number * static_cast<float>(static_cast<int8_t>(unit[blocks.integers_offset() + of_block * kPanel + row]));
}

void quantize_row(const PackedShape& shape, const float* w, int8_t* codes, float* scales) {
  const int64_t length = shape.format == WeightFormat::kInt8 ? shape.columns : kBlock;
  for (int64_t begin = 0, part = 0; begin < shape.columns; begin += length, ++part) {
    const int64_t count = std::min(length, shape.columns - begin);
    const float top = largest_magnitude(w + begin, count);
    if (!(top >= kSmallest && top <= std::numeric_limits<float>::max())) {
      scales[part] = top < kSmallest ? 0 : kNan;
      std::fill_n(codes + begin, count, static_cast<int8_t>(0));
      continue;
    }
    switch (shape.format) {
      case WeightFormat::kInt8: quantize_channel(w, count, top, codes, scales); break;
      case WeightFormat::kInt8Blocks: quantize_block8(w + begin, count, top, codes + begin, scales + part); break;
      case WeightFormat::kInt4Blocks: quantize_block4(w + begin, count, top, codes + begin, scales + part); break;
      default: fail_internal("no quantizer rounds to this format");
    }
  }
}

void pack_row(const PackedShape& shape, int64_t row, const int8_t* codes, const float* scales, std::byte* packed) {
  const int64_t panel = row / kPanel;
  for (int64_t block = 0; block < shape.blocks(); ++block) {
    int8_t some[kBlock] = {};
    std::copy_n(codes + block * kBlock, std::min(kBlock, shape.columns - block * kBlock), some);
    pack_codes(block_format(shape.format), some, row % kPanel,
        packed + panel * shape.panel_bytes() + block * shape.block_bytes());
  }
  if (shape.format == WeightFormat::kInt8) {
    const int32_t sum = 128 * sum_of<int32_t>(shape.columns, [&](int64_t column) { return codes[column]; });
    std::memcpy(packed + shape.scales_offset() + static_cast<size_t>(row) * sizeof(float), scales, sizeof(float));
    std::memcpy(packed + shape.sums_offset() + static_cast<size_t>(row) * sizeof sum, &sum, sizeof sum);
    return;
  }
  for (int64_t block = 0; block < shape.blocks(); ++block) {
    const uint16_t scale = bf16_bits(scales[block]);
    const int64_t at = (panel * shape.blocks() + block) * kPanel + row % kPanel;
    std::memcpy(packed + shape.scales_offset() + static_cast<size_t>(at) * sizeof scale, &scale, sizeof scale);
  }
}

void block_codes(const BlockFormat& blocks, const int8_t* block, int64_t row, int8_t* codes) {
  const int8_t* words = block + row * 4;
  if (blocks.bits == 8) {
    for (int64_t group = 0; group < kBlock / 4; ++group) std::memcpy(codes + group * 4, words + group * kPanel * 4, 4);
    return;
  }
  const int raised = blocks.is_signed ? 8 : 0;
  for (int64_t group = 0; group < kBlock / 8; ++group) {
    const auto word = number_at<uint32_t>(words + group * kPanel * 4);
    for (int64_t j = 0; j < 8; ++j)
      codes[group * 8 + j] = static_cast<int8_t>((static_cast<int>(word >> (4 * j) & 15U) ^ raised) - raised);
  }
  for (int64_t i = 0; blocks.high_bits > 0 && i < kBlock; ++i) {
    const auto [at, shift] = high_bits_of(blocks.high_bits, i);
    const int high = static_cast<uint8_t>(words[4 * 64 + at]) >> shift & ((1 << blocks.high_bits) - 1);
    codes[i] = static_cast<int8_t>(codes[i] | high << 4);
  }
}

void pack_weight(const PackedShape& shape, const float* w, std::byte* packed, ThreadPool& pool) {
  if (shape.format == WeightFormat::kBf16)
    return pool.run(shape.rows, [&](int64_t row, int) {
      auto* out = reinterpret_cast<uint16_t*>(packed) + row * shape.columns;
      for (int64_t i = 0; i < shape.columns; ++i) out[i] = bf16_bits(round_to_bf16(w[row * shape.columns + i]));
    });
  pool.run(shape.panels(), [&](int64_t panel, int) {
    std::memset(packed + panel * shape.panel_bytes(), 0, static_cast<size_t>(shape.panel_bytes()));
    std::vector<int8_t> codes(shape.columns);
    std::vector<float> scales(shape.scales_of_row());
    for (int64_t row = panel * kPanel; row < (panel + 1) * kPanel; ++row) {
      if (row < shape.rows) {
        quantize_row(shape, w + row * shape.columns, codes.data(), scales.data());
      } else {
        std::ranges::fill(codes, static_cast<int8_t>(0));
        std::ranges::fill(scales, 0.0F);
      }
      pack_row(shape, row, codes.data(), scales.data(), packed);
    }
  });
}

size_t quantize_weight_workspace(const PackedShape& shape, int threads) {
  return static_cast<size_t>(padded_columns(shape) * threads);
}

void quantize_weight(const PackedShape& shape, const float* w, bool transposed, std::byte* packed, std::byte* workspace,
    ThreadPool& pool) {
  const float most = has_vnni() ? 127 : 64;
  pool.run(shape.panels(), [&](int64_t panel, int worker) {
    const int64_t first = panel * kPanel, count = std::min(kPanel, shape.rows - first);
    auto* codes = reinterpret_cast<int8_t*>(packed + panel * shape.panel_bytes());
    auto* scales = reinterpret_cast<float*>(packed + shape.scales_offset()) + first;
    auto* sums = reinterpret_cast<int32_t*>(packed + shape.sums_offset()) + first;
    if (transposed) round_columns(w + first, shape.rows, count, shape.columns, most, codes, scales, sums);
    else
      quantize_rows(shape, w + first * shape.columns, count, most,
          reinterpret_cast<int8_t*>(workspace) + worker * padded_columns(shape), codes, scales, sums);
    for (int64_t row = 0; row < kPanel; ++row) sums[row] *= 128;
  });
}

void dequantize_rows(const PackedWeight& weight, int64_t begin, int64_t end, float* out) {
  const PackedShape& shape = weight.shape;
  const int64_t head = shape.rows - shape.tail_rows, columns = shape.columns;
  for (int64_t row = begin, last = 0; row < std::min(end, head); out += (last - row) * columns, row = last) {
    last = std::min({end, head, (row / kPanel + 1) * kPanel});
    if (shape.format != WeightFormat::kBf16) {
      dequantize_codes(weight.head(), row, last - row, out);
      continue;
    }
    const auto* from = reinterpret_cast<const uint16_t*>(weight.data) + row * columns;
    for (int64_t i = 0; i < (last - row) * columns; ++i) out[i] = from_bf16(from[i]);
  }
  if (end > head) dequantize_rows(weight.tail(), std::max<int64_t>(begin - head, 0), end - head, out);
}

void dequantize_unaligned(const PackedShape& shape, const std::byte* data, float* out) {
  std::vector<std::max_align_t> aligned(shape.bytes() / sizeof(std::max_align_t) + 1);
  std::memcpy(aligned.data(), data, shape.bytes());
  dequantize_rows({shape, reinterpret_cast<const std::byte*>(aligned.data())}, 0, shape.rows, out);
}

void pack_blocks(const PackedShape& shape, const std::byte* rows, std::byte* packed, ThreadPool& pool) {
  if (shape.tail_rows > 0) {
    const PackedShape head = shape.head();
    pack_blocks(head, rows, packed, pool);
    return pack_blocks(
        shape.tail(), rows + head.rows * file_row_bytes(head.format, head.columns), packed + head.bytes(), pool);
  }
  const BlockFormat blocks = block_format(shape.format);
  const int64_t row_bytes = file_row_bytes(shape.format, shape.columns);
  pool.run(shape.panels(), [&](int64_t panel, int) {
    std::byte* words = packed + panel * shape.panel_bytes();
    std::byte* scales = packed + shape.scales_offset() + panel * shape.panel_scale_bytes();
    std::memset(words, 0, static_cast<size_t>(shape.panel_bytes()));
    std::memset(scales, 0, static_cast<size_t>(shape.panel_scale_bytes()));
    FileBlock read;
    for (int64_t row = 0; row < std::min(kPanel, shape.rows - panel * kPanel); ++row) {
      const std::byte* from = rows + (panel * kPanel + row) * row_bytes;
      for (int64_t block = 0; block < shape.blocks(); from += blocks.file_bytes()) {
        read_file_block(shape.format, from, read);
        std::byte* unit = scales + block / blocks.unit * blocks.scale_bytes();
        for (int64_t i = 0; i < 1 + blocks.minimum; ++i) std::memcpy(unit + 32 * i + row * 2, &read.numbers[i], 2);
        for (int64_t i = 0; i < blocks.unit; ++i, ++block) {
          pack_codes(blocks, read.codes + i * kBlock, row, words + block * shape.block_bytes());
          const int64_t integers = blocks.unit == 1 ? 0 : blocks.parts + blocks.minimum;
          for (int64_t part = 0; part < integers; ++part)
            unit[blocks.integers_offset() + (i * integers + part) * kPanel + row] =
                static_cast<std::byte>(read.integers[i][part]);
        }
      }
    }
  });
}

void dequantize_rows(const PackedWeight& weight, int64_t begin, int64_t end, float* out, ThreadPool& pool) {
  pool.run(ceil_div(end - begin, kPanel), [&](int64_t task, int) {
    const int64_t first = begin + task * kPanel, last = std::min(end, first + kPanel);
    dequantize_rows(weight, first, last, out + (first - begin) * weight.shape.columns);
  });
}

bool neighbors_fit(std::span<const int8_t> row) {
  for (size_t i = 0; i < row.size(); i += 2) {
    const int a = row[i], b = i + 1 < row.size() ? row[i + 1] : 0;
    if (a == -128 || b == -128 || std::max(a, 0) + std::max(b, 0) > kMostPair ||
        std::min(a, 0) + std::min(b, 0) < -kMostPair)
      return false;
  }
  return true;
}

// Blocks as in files.
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
