#include "engine/kernels/embedding.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
struct Problem {
  int64_t count, width, vocabulary;
};

constexpr Problem kProblems[] = {{0, 5, 3}, {1, 1, 1}, {9, 33, 4}, {100, 64, 7}, {500, 257, 60}, {300, 1000, 2000}};

std::vector<int32_t> some_ids(const Problem& p) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < p.count; ++i) ids.push_back(static_cast<int32_t>(i * 31 % 17 * i % p.vocabulary));
  return ids;
}

TEST(Embedding, GatherCopiesRows) {
  ThreadPool pool(3);
  for (const Problem& p : kProblems) {
    const auto table = random_floats(p.vocabulary * p.width, 1);
    const auto ids = some_ids(p);
    std::vector<float> out(p.count * p.width);
    gather_rows(p.count, p.width, table.data(), ids.data(), out.data(), pool);
    for (int64_t k = 0; k < p.count * p.width; ++k) ASSERT_EQ(out[k], table[ids[k / p.width] * p.width + k % p.width]);
  }
}

TEST(Embedding, ScatterAddsInOrderOnTopOfTheTable) {
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(std::to_string(p.count) + " x " + std::to_string(p.width));
    auto dy = random_floats(p.count * p.width, 1);
    if (p.count > 5) dy[5 * p.width] = kNan;
    const auto start = random_floats(p.vocabulary * p.width, 2);
    const auto ids = some_ids(p);
    auto want = start;
    for (int64_t k = 0; k < p.count * p.width; ++k) want[ids[k / p.width] * p.width + k % p.width] += dy[k];
    for_every_isa(
        [&](ThreadPool& pool) {
          auto table = start;
          scatter_add_rows(p.count, p.width, dy.data(), ids.data(), table.data(), pool);
          return table;
        },
        [&](const std::vector<float>& table) { expect_close(table, want, 0); });
  }
}
}  // namespace
}  // namespace linnet
