#include "engine/kernels/random/philox.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
TEST(DropoutKernel, KeepsWhatTheContractKeeps) {
  const int64_t shapes[][2] = {{0, 5}, {1, 1}, {3, 13}, {7, 129}, {2, 4096 + 37}, {300, 100}};
  for (const auto& [samples, elements] : shapes) {
    SCOPED_TRACE(std::to_string(samples) + " x " + std::to_string(elements));
    const float p = 0.3f;
    const uint64_t key = 0x123456789abcdef;
    auto x = random_floats(samples * elements, 1);
    if (x.size() > 30) x[30] = kNan, x[11] = kInf;
    std::vector<float> want;
    for (int64_t k = 0; k < samples * elements; ++k) {
      const auto sample = static_cast<uint32_t>(5 + k / elements);
      const bool kept = dropout_keeps(key, k % elements, kDenseDropout, 0, sample, p);
      want.push_back(kept ? x[k] * dropout_scale(p) : 0);
    }
    for_every_isa(
        [&, samples = samples, elements = elements](ThreadPool& pool) {
          std::vector<float> y = x;
          y.push_back(-7);
          dropout(samples, elements, y.data(), y.data(), p, key, pool, 5);
          EXPECT_EQ(y.back(), -7) << "wrote past the end";
          y.pop_back();
          return y;
        },
        [&](const std::vector<float>& y) { expect_close(y, want, 0); });
  }
}

TEST(DropoutKernel, ProbabilityZeroCopies) {
  ThreadPool pool(1);
  const auto x = random_floats(100, 1);
  std::vector<float> y(100);
  dropout(4, 25, x.data(), y.data(), 0, 1, pool);
  EXPECT_EQ(y, x);
}
}  // namespace
}  // namespace linnet
