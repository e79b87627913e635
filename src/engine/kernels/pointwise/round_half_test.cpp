#include "engine/kernels/stored_floats.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
TEST(RoundHalf, EdgesOfTheFormat) {
  const std::vector<std::pair<float, float>> cases = {{1, 1}, {2049, 2048},  // a tie goes to the even mantissa
      {2051, 2052}, {65504, 65504}, {65519.996f, 65504}, {65520, kInf}, {-65520, -kInf}, {-1e30f, -kInf}, {kInf, kInf},
      {0x1p-14f, 0x1p-14f}, {0x1.8p-24f, 0x1p-23f}, {0x1p-25f, 0}, {0x1.1p-25f, 0x1p-24f}, {-0x1p-26f, -0.0f},
      {0.1f, 0x1.998p-4f}};
  std::vector<float> from, want;
  for (const auto& [x, y] : cases) from.push_back(x), want.push_back(y);
  from.push_back(kNan), want.push_back(kNan);
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(round_to_half(from[i]), want[i]) << from[i];
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<float> to(from.size());
        round_to_half(static_cast<int64_t>(from.size()), from.data(), to.data(), pool);
        return to;
      },
      [&](const std::vector<float>& to) {
        for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(to[i], want[i]) << from[i];
        EXPECT_TRUE(std::isnan(to.back()));
      });
}

TEST(RoundHalf, AllSizesOfNumbersAsTheDefinitionSays) {
  std::vector<float> from = random_floats(40'001, 5, -1, 1);
  for (size_t i = 0; i < from.size(); ++i) from[i] = std::ldexp(from[i], static_cast<int>(i % 48) - 28);
  std::vector<float> want;
  for (const float x : from) want.push_back(round_to_half(x));
  for_every_isa(
      [&](ThreadPool& pool) {
        std::vector<float> to = from;
        round_to_half(static_cast<int64_t>(to.size()), to.data(), to.data(), pool);
        return to;
      },
      [&](const std::vector<float>& to) { EXPECT_TRUE(same_bits(to, want)); });
}
}  // namespace
}  // namespace linnet
