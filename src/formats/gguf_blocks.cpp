#include "formats/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace linnet {
namespace {

using Block = const std::byte*;

float half_at(Block block, size_t offset) {
  float value;
  read_floats(FileDType::kF16, block + offset, 1, &value);
  return value;
}
void put_half(float value, std::byte* block) { write_floats(FileDType::kF16, &value, 1, block); }
int at(Block block, size_t offset) { return std::to_integer<int>(block[offset]); }

constexpr int kSmall = 32, kLarge = 256;  // elements of a block

// Codes of 4 bits: byte i holds elements i (low bits) and i + 16. `high`: the fifth bits, 32 in a row.
template <bool kFive, bool kMinimum>
void read_small(Block block, float* out) {
  const float scale = half_at(block, 0), minimum = kMinimum ? half_at(block, 2) : 0;
  size_t codes = kMinimum ? 4 : 2;
  uint32_t high = 0;
  if (kFive) std::memcpy(&high, block + codes, sizeof high), codes += sizeof high;
  constexpr int kZero = kMinimum ? 0 : kFive ? 16 : 8;
  for (int i = 0; i < kSmall; ++i) {
    const int low = at(block, codes + static_cast<size_t>(i % 16)) >> (i < 16 ? 0 : 4) & 15;
    const int code = (low | static_cast<int>(high >> i & 1) << 4) - kZero;
    out[i] = static_cast<float>(code) * scale + minimum;
  }
}

void read_q8_0(Block block, float* out) {
  const float scale = half_at(block, 0);
  for (size_t i = 0; i < kSmall; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * scale;
}

void write_q8_0(const float* values, std::byte* block) {
  float most = 0;
  for (int i = 0; i < kSmall; ++i) most = std::max(most, std::abs(values[i]));
  const float scale = most / 127, inverse = scale != 0 ? 1 / scale : 0;
  put_half(scale, block);
  for (size_t i = 0; i < kSmall; ++i) block[2 + i] = static_cast<std::byte>(std::lround(values[i] * inverse));
}

// The number of largest magnitude gets the code -8, which 7 would not reach.
void write_q4_0(const float* values, std::byte* block) {
  float most = 0;
  for (int i = 0; i < kSmall; ++i)
    if (std::abs(values[i]) > std::abs(most)) most = values[i];
  const float scale = most / -8, inverse = scale != 0 ? 1 / scale : 0;
  put_half(scale, block);
  const auto code = [&](int i) { return std::clamp(static_cast<int>(values[i] * inverse + 8.5F), 0, 15); };
  for (int i = 0; i < 16; ++i) block[2 + i] = static_cast<std::byte>(code(i) | code(i + 16) << 4);
}

// The 6-bit scale and minimum of 32 elements: 8 of each in 12 bytes.
std::pair<int, int> packed_scale(Block scales, size_t i) {
  if (i < 4) return {at(scales, i) & 63, at(scales, i + 4) & 63};
  return {(at(scales, i + 4) & 15) | at(scales, i - 4) >> 6 << 4, at(scales, i + 4) >> 4 | at(scales, i) >> 6 << 4};
}

// Of Q4_K and Q5_K: 32 bytes hold 32 elements in their low bits and the next 32 in their high ones.
template <bool kFive>
void read_k(Block block, float* out) {
  const float scale = half_at(block, 0), minimum = half_at(block, 2);
  const Block scales = block + 4, high = block + 16, codes = block + (kFive ? 48 : 16);
  for (size_t part = 0; part < kLarge / 32; ++part) {
    const auto [part_scale, part_minimum] = packed_scale(scales, part);
    const float s = scale * static_cast<float>(part_scale), m = minimum * static_cast<float>(part_minimum);
    for (size_t i = 0; i < 32; ++i) {
      int code = at(codes, part / 2 * 32 + i) >> (part % 2 * 4) & 15;
      if (kFive) code |= (at(high, i) >> part & 1) << 4;
      out[part * 32 + i] = s * static_cast<float>(code) - m;
    }
  }
}

void read_q6_k(Block block, float* out) {
  const float scale = half_at(block, 208);
  const Block low = block, high = block + 128, scales = block + 192;
  for (size_t i = 0; i < kLarge; ++i) {
    const size_t half = i / 128, quarter = i % 128 / 32, in = i % 32;
    const int code = (at(low, half * 64 + quarter % 2 * 32 + in) >> (quarter / 2 * 4) & 15) |
                     (at(high, half * 32 + in) >> (quarter * 2) & 3) << 4;
    const float part = scale * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = part * static_cast<float>(code - 32);
  }
}

using enum FileDType;
constexpr GgufBlocks kBlocks[] = {{0, "F32", 1, 4, kF32, nullptr},
                                  {1, "F16", 1, 2, kF16, nullptr},
                                  {30, "BF16", 1, 2, kBF16, nullptr},
                                  {28, "F64", 1, 8, kF64, nullptr},
                                  {8, "Q8_0", kSmall, 34, kF32, read_q8_0, write_q8_0},
                                  {2, "Q4_0", kSmall, 18, kF32, read_small<false, false>, write_q4_0},
                                  {3, "Q4_1", kSmall, 20, kF32, read_small<false, true>},
                                  {6, "Q5_0", kSmall, 22, kF32, read_small<true, false>},
                                  {7, "Q5_1", kSmall, 24, kF32, read_small<true, true>},
                                  {12, "Q4_K", kLarge, 144, kF32, read_k<false>},
                                  {13, "Q5_K", kLarge, 176, kF32, read_k<true>},
                                  {14, "Q6_K", kLarge, 210, kF32, read_q6_k}};

// For messages, and integers, which no weights are.
constexpr std::pair<uint32_t, const char*> kOthers[] = {
    {9, "Q8_1"},   {10, "Q2_K"},   {11, "Q3_K"},  {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},
    {26, "I32"},   {27, "I64"},    {29, "IQ1_M"}, {34, "TQ1_0"}, {35, "TQ2_0"},   {39, "MXFP4"},  {40, "NVFP4"}};

}  // namespace

const GgufBlocks* find_gguf_blocks(uint32_t id) {
  const auto* found = std::ranges::find(kBlocks, id, &GgufBlocks::id);
  return found == std::end(kBlocks) ? nullptr : found;
}

const GgufBlocks* find_gguf_blocks(std::string_view name) {
  for (const GgufBlocks& blocks : kBlocks)
    if (name == blocks.name) return &blocks;
  return nullptr;
}

std::string gguf_type_name(uint32_t id) {
  if (const GgufBlocks* blocks = find_gguf_blocks(id)) return blocks->name;
  for (const auto& [other, name] : kOthers)
    if (other == id) return name;
  return "of type " + std::to_string(id);
}

std::string gguf_type_names() {
  std::string names;
  for (const GgufBlocks& blocks : kBlocks) names += (names.empty() ? "" : ", ") + std::string(blocks.name);
  return names;
}

void read_gguf(const GgufBlocks& blocks, const std::byte* data, int64_t count, std::byte* out) {
  if (!blocks.read) {
    if (count > 0) std::memcpy(out, data, static_cast<size_t>(count) * blocks.bytes);
    return;
  }
  std::array<float, kLarge> values;
  const size_t bytes = static_cast<size_t>(blocks.elements) * sizeof(float);
  for (int64_t i = 0; i < count / blocks.elements; ++i, data += blocks.bytes, out += bytes) {
    blocks.read(data, values.data());
    std::memcpy(out, values.data(), bytes);
  }
}

void write_gguf(const GgufBlocks& blocks, const float* values, int64_t count, std::byte* out) {
  if (!blocks.write) return write_floats(blocks.dtype, values, count, out);
  for (int64_t i = 0; i < count / blocks.elements; ++i)
    blocks.write(values + i * blocks.elements, out + static_cast<size_t>(i) * blocks.bytes);
}

}  // namespace linnet
