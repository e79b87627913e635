#include "distributed/comm/tensor_group.h"
#include <gtest/gtest.h>
#include "comm_testing.h"

namespace linnet {
namespace {
float value(int rank, size_t i) { return static_cast<float>(rank + 1) * 0.1F + static_cast<float>(i % 97) * 1.7F; }

// Few values, one piece that ranks share unevenly, and several pieces.
TEST(TensorGroup, SumsHaveTheSameBitsOnEveryRank) {
  for (const int ranks : {2, 3, 4})
    for (const size_t count : {size_t{1}, size_t{5}, size_t{10007}, size_t{600'001}}) {
      std::vector<std::vector<float>> sums(static_cast<size_t>(ranks));
      testing::run_ranks(ranks, [&](Communicator& world) {
        ThreadPool pool(1);
        std::vector<float>& values = sums[static_cast<size_t>(world.rank())];
        values.resize(count);
        for (size_t i = 0; i < count; ++i) values[i] = value(world.rank(), i);
        std::vector<float> scratch(sum_scratch_size(count, ranks));
        sum_over_ranks(world, values, scratch, pool);
      });
      for (size_t i = 0; i < count; ++i) {
        float expected = value(0, i);
        for (int rank = 1; rank < ranks; ++rank) expected += value(rank, i);
        ASSERT_EQ(sums[0][i], expected) << ranks << " ranks, element " << i << " of " << count;
      }
      for (const std::vector<float>& sum : sums) EXPECT_EQ(sum, sums[0]);
    }
}

// Six ranks as three groups of two: sums stay in the group, and each rank knows its counterparts in the others.
TEST(TensorGroup, GroupsOfRanksDivideTheWorld) {
  std::vector<float> in_tensor(6), in_data(6);
  testing::run_ranks(6, [&](Communicator& world) {
    ThreadPool pool(1);
    RankGroups groups(world, 2);
    EXPECT_EQ(groups.tensor.size(), 2);
    EXPECT_EQ(groups.tensor.rank(), world.rank() % 2);
    EXPECT_EQ(groups.data.size(), 3);
    EXPECT_EQ(groups.data.rank(), world.rank() / 2);
    const auto sum = [&](Communicator& group) {
      float own = static_cast<float>(1 << world.rank());
      std::vector<float> scratch(sum_scratch_size(1, group.size()));
      sum_over_ranks(group, {&own, 1}, scratch, pool);
      return own;
    };
    in_tensor[static_cast<size_t>(world.rank())] = sum(groups.tensor);
    in_data[static_cast<size_t>(world.rank())] = sum(groups.data);
  });
  EXPECT_EQ(in_tensor, (std::vector<float>{3, 3, 12, 12, 48, 48}));
  EXPECT_EQ(in_data, (std::vector<float>{21, 42, 21, 42, 21, 42}));
}
}  // namespace
}  // namespace linnet
