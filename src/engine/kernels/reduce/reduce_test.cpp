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

TEST(Reduce, SumRowsMatches) {
  const int64_t shapes[][2] = {{0, 5}, {1, 1}, {3, 7}, {64, 33}, {67, 1025}, {1000, 100}, {5000, 3}, {70, 2500}};
  for (const auto& [rows, width] : shapes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    const auto x = random_floats(rows * width, 1), before = random_floats(width, 2);
    std::vector<double> want(width, 0);
    for (int64_t j = 0; j < width; ++j)
      for (int64_t i = 0; i < rows; ++i) want[j] += x[i * width + j];
    for_every_isa(
        [&, rows = rows, width = width](ThreadPool& pool) {
          std::vector<float> out = before, work(sum_rows_workspace(rows, width) / sizeof(float));
          sum_rows(rows, width, x.data(), out.data(), work.data(), pool);
          return out;
        },
        [&](const std::vector<float>& out) { expect_close(out, want, 2e-5); });
  }
}
}  // namespace
}  // namespace linnet
