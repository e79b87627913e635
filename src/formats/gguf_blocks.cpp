#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include "base/functions.h"
#include "base/text.h"
#include "engine/kernels/quantized/packed_weight.h"
#include "formats/gguf_file.h"

namespace linnet {
namespace {
void put_half(float value, std::byte* block) { write_floats(FileDType::kF16, &value, 1, block); }

constexpr int kSmall = 32, kLarge = 256;  // elements of a block

void write_q8_0(const float* values, std::byte* block) {
  const float most = max_of<float>(kSmall, [&](int i) { return std::abs(values[i]); });
  const float scale = most / 127, inverse = scale != 0 ? 1 / scale : 0;
  put_half(scale, block);
  for (size_t i = 0; i < kSmall; ++i) block[2 + i] = static_cast<std::byte>(std::lround(values[i] * inverse));
}

// The number of largest magnitude becomes -8, as codes end at 7.
void write_q4_0(const float* values, std::byte* block) {
  float most = 0;
  for (int i = 0; i < kSmall; ++i)
    if (std::abs(values[i]) > std::abs(most)) most = values[i];
  const float scale = most / -8, inverse = scale != 0 ? 1 / scale : 0;
  put_half(scale, block);
  const auto code = [&](int i) { return std::clamp(static_cast<int>(values[i] * inverse + 8.5F), 0, 15); };
  for (int i = 0; i < 16; ++i) block[2 + i] = static_cast<std::byte>(code(i) | code(i + 16) << 4);
}

using enum FileDType;
using enum WeightFormat;
constexpr GgufBlocks kBlocks[] = {{0, "F32", 1, 4, kF32, {}}, {1, "F16", 1, 2, kF16, {}},
    {30, "BF16", 1, 2, FileDType::kBF16, {}}, {28, "F64", 1, 8, kF64, {}},
    {8, "Q8_0", kSmall, 34, kF32, kQ8_0, write_q8_0}, {2, "Q4_0", kSmall, 18, kF32, kQ4_0, write_q4_0},
    {3, "Q4_1", kSmall, 20, kF32, kQ4_1}, {6, "Q5_0", kSmall, 22, kF32, kQ5_0}, {7, "Q5_1", kSmall, 24, kF32, kQ5_1},
    {12, "Q4_K", kLarge, 144, kF32, kQ4K}, {13, "Q5_K", kLarge, 176, kF32, kQ5K},
    {14, "Q6_K", kLarge, 210, kF32, kQ6K}};

// For messages, and integers, which no weights have.
constexpr std::pair<uint32_t, const char*> kOthers[] = {{9, "Q8_1"}, {10, "Q2_K"}, {11, "Q3_K"}, {15, "Q8_K"},
    {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},
    {23, "IQ4_XS"}, {24, "I8"}, {25, "I16"}, {26, "I32"}, {27, "I64"}, {29, "IQ1_M"}, {34, "TQ1_0"}, {35, "TQ2_0"},
    {39, "MXFP4"}, {40, "NVFP4"}};
}  // namespace

const GgufBlocks* find_gguf_blocks(uint32_t id) { return find_item(kBlocks, id, &GgufBlocks::id); }

const GgufBlocks* find_gguf_blocks(std::string_view name) { return find_item(kBlocks, name, &GgufBlocks::name); }

std::string gguf_type_name(uint32_t id) {
  if (const GgufBlocks* blocks = find_gguf_blocks(id)) return blocks->name;
  for (const auto& [other, name] : kOthers)
    if (other == id) return name;
  return "of type " + std::to_string(id);
}

std::string gguf_type_names() { return joined(kBlocks, ", ", &GgufBlocks::name); }

void read_gguf(const GgufBlocks& blocks, const std::byte* data, int64_t count, std::byte* out) {
  if (!blocks.format) {
    if (count > 0) std::memcpy(out, data, static_cast<size_t>(count) * blocks.bytes);
    return;
  }
  std::array<float, kLarge> values;
  const size_t bytes = static_cast<size_t>(blocks.elements) * sizeof(float);
  for (int64_t i = 0; i < count / blocks.elements; ++i, data += blocks.bytes, out += bytes) {
    file_block_values(*blocks.format, data, values.data());
    std::memcpy(out, values.data(), bytes);
  }
}

void write_gguf(const GgufBlocks& blocks, const float* values, int64_t count, std::byte* out) {
  if (!blocks.write) return write_floats(blocks.dtype, values, count, out);
  for (int64_t i = 0; i < count / blocks.elements; ++i)
    blocks.write(values + i * blocks.elements, out + static_cast<size_t>(i) * blocks.bytes);
}
}  // namespace linnet
