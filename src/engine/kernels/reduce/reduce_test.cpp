#include "engine/kernels/reduce/reduce.h"
#include <cmath>
#include "kernel_testing.h"

namespace linnet {
namespace {
TEST(Reduce, SumsMatchOnEveryInstructionSetAndThreadCount) {
  ThreadPool one(1), three(3);
  for (const int64_t n : {0, 1, 7, 4095, 4097, 100'003}) {
    const auto x = random_floats(n, 1, -1, 2);
    std::vector<double> work(sum_workspace(n) / sizeof(double));
    double squares = 0;
    for (const float v : x) squares += double(v) * v;
    for (const auto& isa : available_isas()) {
      force_isa(isa);
      EXPECT_NEAR(sum_of_squares(n, x.data(), work.data(), one), squares, 1e-9 * double(n)) << isa;
      EXPECT_EQ(sum_of_squares(n, x.data(), work.data(), one), sum_of_squares(n, x.data(), work.data(), three)) << isa;
    }
  }
  force_isa("auto");
}

TEST(Reduce, SquaresDoNotOverflowAndNanShows) {
  ThreadPool pool(1);
  std::vector<float> x(101, 1e30f);
  std::vector<double> work(1);
  EXPECT_NEAR(sum_of_squares(101, x.data(), work.data(), pool) / 101e60, 1, 1e-6);
  x[100] = kInf;
  EXPECT_EQ(sum_of_squares(101, x.data(), work.data(), pool), kInf);
  x[3] = kNan;
  EXPECT_TRUE(std::isnan(sum_of_squares(101, x.data(), work.data(), pool)));
}
}  // namespace
}  // namespace linnet
