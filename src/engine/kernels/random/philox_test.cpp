#include "engine/kernels/random/philox.h"
#include <gtest/gtest.h>
#include <random>
#include <vector>
#include "base/error.h"
#include "engine/kernels/processor.h"

namespace linnet {
namespace {
// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(
      philox4x32({ones, ones, ones, ones}, ~uint64_t{0}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, VectorsEqualTheReferenceOnEveryInstructionSet) {
  std::mt19937_64 random(1);
  for (const auto& isa : available_isas()) {
    force_isa(isa);
    for (int round = 0; round < 40; ++round) {
      const uint64_t key = random();
      const auto c1 = static_cast<uint32_t>(random()), c2 = static_cast<uint32_t>(random()),
                 c3 = static_cast<uint32_t>(random());
      const uint32_t first = round % 4 == 0 ? 0xfffffff9u : static_cast<uint32_t>(random());  // the counter may wrap
      const int64_t blocks = round;
      std::vector<uint16_t> values(blocks * 8 + 1, 0xABCD);
      philox_values16(key, first, blocks, c1, c2, c3, values.data());
      for (int64_t i = 0; i < blocks * 8; ++i) {
        const auto words = philox4x32({first + static_cast<uint32_t>(i / 8), c1, c2, c3}, key);
        ASSERT_EQ(values[i], static_cast<uint16_t>(words[i % 8 / 2] >> (16 * (i % 2)))) << isa << " value " << i;
      }
      EXPECT_EQ(values.back(), 0xABCD) << "wrote past the end";
    }
  }
  force_isa("auto");
}

TEST(Dropout, KeepsTheStatedShareAndTheScaleUndoesIt) {
  for (const float p : {0.0f, 0.1f, 0.5f, 0.9f}) {
    int kept = 0;
    constexpr int count = 80000;
    for (int i = 0; i < count; ++i) kept += dropout_keeps(42, i, kDenseDropout, 0, 3, p);
    EXPECT_NEAR(kept / double(count), 1 - p, 0.006);
    EXPECT_NEAR(dropout_scale(p) * (1 - p), 1, 1e-4);
  }
  EXPECT_EQ(dropout_threshold(0.99999999f - 1e-7f), 65535u);
  EXPECT_THROW(dropout_threshold(1.0f), Error);
}
}  // namespace
}  // namespace linnet
