#include "engine/kernels/stored_floats.h"
#include <cmath>
#include <limits>
#include "kernel_testing.h"

namespace linnet {
namespace {
float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

std::vector<Bfloat16> all_bf16() {
  std::vector<Bfloat16> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  return all;
}

TEST(StoredFloats, WideningKeepsEveryValue) {
  const std::vector<Bfloat16> from = all_bf16();
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<float> to(from.size());
        convert_floats(std::ssize(from), from.data(), to.data(), pool);
        return to;
      },
      [&](const std::vector<float>& to) {
        for (size_t i = 0; i < to.size(); ++i)
          ASSERT_EQ(std::bit_cast<uint32_t>(to[i]), static_cast<uint32_t>(i) << 16) << i;
      });
}

// Around each of the values of bf16 and halfway to the next: denormals, ties, the largest numbers, infinities and NaN.
std::vector<float> hard_values() {
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 1 << 16; ++upper)
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      values.push_back(from_bits(upper << 16 | lower));
  return values;
}

TEST(StoredFloats, RoundingIsToNearestEven) {
  const std::vector<float> from = hard_values();
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<Bfloat16> to(from.size());
        convert_floats(std::ssize(from), from.data(), to.data(), pool);
        return std::vector<float>(to.begin(), to.end());
      },
      [&](const std::vector<float>& to) {
        for (size_t i = 0; i < to.size(); ++i)
          ASSERT_EQ(std::bit_cast<uint32_t>(to[i]), std::bit_cast<uint32_t>(round_to_bf16(from[i]))) << from[i];
      });
  EXPECT_EQ(static_cast<float>(Bfloat16(1 + 0x1p-8f)), 1);
  EXPECT_EQ(static_cast<float>(Bfloat16(1 + 3 * 0x1p-8f)), 1 + 0x1p-6f);
  EXPECT_EQ(Bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(Bfloat16(-0x1p-127f).bits, 0x8000);
  EXPECT_TRUE(std::isnan(Bfloat16(from_bits(0x7f800001))));
}

TEST(StoredFloats, PartsTouchNothingBehindThem) {
  for (int64_t n = 0; n <= 70; ++n)
    for (const int64_t offset : {0, 1, 3}) {
      SCOPED_TRACE(std::to_string(n) + " from " + std::to_string(offset));
      const std::vector<float> x = random_floats(n, 7);
      for_every_isa(
          [&](ThreadPool& pool) {
            std::vector<Bfloat16> rounded(static_cast<size_t>(n + offset + 40), Bfloat16(5.0f));
            std::vector<float> result(rounded.size(), 5);
            convert_floats(n, x.data(), rounded.data() + offset, pool);
            convert_floats(n, rounded.data() + offset, result.data() + offset, pool);
            for (int64_t i = 0; i < std::ssize(result); ++i) {
              const bool inside = i >= offset && i < n + offset;
              EXPECT_EQ(rounded[i], inside ? round_to_bf16(x[i - offset]) : 5.0f);
              EXPECT_EQ(result[i], rounded[i]);
            }
            return result;
          },
          [](const std::vector<float>&) {});
    }
}

TEST(StoredFloats, PointersCountElements) {
  const std::vector<float> x{1, 2, 3};
  const std::vector<Bfloat16> y{Bfloat16(1.0f), Bfloat16(2.0f), Bfloat16(3.0f)};
  for (const StoredFloats floats : {StoredFloats(x.data()), StoredFloats(y.data())}) {
    EXPECT_EQ((floats + 1)[1], 3);
    EXPECT_TRUE(floats);
  }
  EXPECT_FALSE(StoredFloats(nullptr));
}
}  // namespace
}  // namespace linnet
