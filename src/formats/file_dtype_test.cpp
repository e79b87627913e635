#include <gtest/gtest.h>
#include <cmath>
#include <limits>
#include "formats/tensor_file.h"

namespace linnet {
namespace {
uint16_t written(FileDType dtype, float value) {
  uint16_t bits = 0;
  write_floats(dtype, &value, 1, reinterpret_cast<std::byte*>(&bits));
  return bits;
}

TEST(FileDType, EveryHalfAndBfloatIsReadAndWrittenWithoutChange) {
  for (const FileDType dtype : {FileDType::kF16, FileDType::kBF16})
    for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      float value = 0;
      read_floats(dtype, reinterpret_cast<const std::byte*>(&half), 1, &value);
      ASSERT_EQ(written(dtype, value), half) << file_dtype_name(dtype) << " " << bits;
    }
}

TEST(FileDType, WritingRoundsToNearestEven) {
  EXPECT_EQ(written(FileDType::kF16, 1 + 0x1p-11F), 0x3c00);      // half way: to the even one below
  EXPECT_EQ(written(FileDType::kF16, 1 + 3 * 0x1p-11F), 0x3c02);  // to the even one above
  EXPECT_EQ(written(FileDType::kF16, 1 + 0x1.1p-11F), 0x3c01);    // beyond half way
  EXPECT_EQ(written(FileDType::kF16, 65519.0F), 0x7bff);          // the largest
  EXPECT_EQ(written(FileDType::kF16, 65520.0F), 0x7c00);          // infinity
  EXPECT_EQ(written(FileDType::kF16, -0x1p-24F), 0x8001);         // the smallest
  EXPECT_EQ(written(FileDType::kF16, 0x1p-25F), 0);               // half of it, to even
  EXPECT_EQ(written(FileDType::kF16, 0x1.ffep-15F), 0x0400);      // a subnormal that becomes normal
  EXPECT_EQ(written(FileDType::kBF16, 1 + 0x1p-8F), 0x3f80);
  EXPECT_EQ(written(FileDType::kBF16, 1 + 3 * 0x1p-8F), 0x3f82);
  EXPECT_EQ(written(FileDType::kBF16, std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_GT(written(FileDType::kBF16, std::nanf("")) & 0x7fff, 0x7f80);
  EXPECT_GT(written(FileDType::kF16, std::nanf("")) & 0x7fff, 0x7c00);
}

TEST(FileDType, IntegersAreWidened) {
  const auto read = [](FileDType dtype, auto value) {
    int64_t out = 0;
    read_integers(dtype, reinterpret_cast<const std::byte*>(&value), 1, &out);
    return out;
  };
  EXPECT_EQ(read(FileDType::kI64, int64_t{-7}), -7);
  EXPECT_EQ(read(FileDType::kU32, uint32_t{4'000'000'000}), 4'000'000'000);
  EXPECT_EQ(read(FileDType::kI16, int16_t{-300}), -300);
  EXPECT_EQ(read(FileDType::kI8, int8_t{-3}), -3);
  EXPECT_EQ(read(FileDType::kBool, uint8_t{1}), 1);
}
}  // namespace
}  // namespace linnet
