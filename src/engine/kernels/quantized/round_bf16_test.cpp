#include <cmath>
#include <cstring>
#include <vector>
#include "engine/kernels/random/philox.h"
#include "engine/kernels/stored_floats.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
constexpr uint64_t kKey = 0x123456789abcdef;

float number_of(uint16_t bf16) {
  const uint32_t bits = static_cast<uint32_t>(bf16) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

TEST(StochasticRounding, HasTheBitsOfTheContractOnEveryInstructionSet) {
  for (const int64_t count : {1, 13, 128, 129, 4096 + 37, 20000}) {
    SCOPED_TRACE(count);
    auto x = random_floats(count, 1);
    const float special[] = {kNan, kInf, -kInf, 0.0F, -0.0F, 1e-41F, 3.4e38F};
    for (size_t i = 0; i < std::min(x.size(), std::size(special)); ++i) x[x.size() - 1 - i] = special[i];
    std::vector<uint16_t> random(static_cast<size_t>(count + 7) / 8 * 8);
    std::vector<float> want;
    philox_values16(kKey, 0, static_cast<int64_t>(random.size()) / 8, kBf16Rounding, 0, 0, random.data());
    for (size_t i = 0; i < x.size(); ++i) want.push_back(number_of(round_to_bf16_by(x[i], random[i])));
    for_every_isa(
        [&](ThreadPool& pool) {
          std::vector<uint16_t> y(x.size() + 1, 7);
          round_to_bf16_stochastic(count, x.data(), y.data(), kKey, pool);
          EXPECT_EQ(y.back(), 7) << "wrote past the end";
          std::vector<float> numbers;
          for (size_t i = 0; i < x.size(); ++i) numbers.push_back(number_of(y[i]));
          return numbers;
        },
        [&](const std::vector<float>& y) { EXPECT_TRUE(same_bits(y, want)); });
  }
}

TEST(StochasticRounding, KeepsNumbersOfBf16AndTheExpectationOfOthers) {
  ThreadPool pool(2);
  const int64_t count = 100000;
  const auto rounded = [&](float x) {
    const std::vector<float> all(static_cast<size_t>(count), x);
    std::vector<uint16_t> y(all.size());
    round_to_bf16_stochastic(count, all.data(), y.data(), kKey, pool);
    return y;
  };
  for (const float exact : {1.0F, -0.15625F, 1024.0F})
    for (const uint16_t y : rounded(exact)) ASSERT_EQ(number_of(y), exact);
  // Between the neighbors 1 and 1 + 2^-7, a tenth of the way up: nearest rounding would always give 1.
  const float x = 1 + 0.1F / 128;
  double mean = 0;
  for (const uint16_t y : rounded(x)) {
    ASSERT_TRUE(number_of(y) == 1.0F || number_of(y) == 1.0F + 1.0F / 128);
    mean += number_of(y) / static_cast<double>(count);
  }
  EXPECT_NEAR(mean, x, 5 * 0.3 / 128 / std::sqrt(static_cast<double>(count)));
  EXPECT_TRUE(std::isnan(number_of(rounded(kNan)[0])));
  EXPECT_EQ(number_of(rounded(-kInf)[0]), -kInf);
}
}  // namespace
}  // namespace linnet
