// The order of summation over shards: for one number of shards, the same bits on every number of ranks.
#include "distributed/comm/shard_sum.h"
#include <gtest/gtest.h>
#include <random>
#include "base/error.h"
#include "comm_testing.h"

namespace linnet {
namespace {
using Values = std::vector<float>;

Values shard_values(int64_t shard, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(shard) + 7);
  std::normal_distribution<float> normal(0, 1);
  Values values(count);
  for (float& value : values) value = normal(random) * (shard % 2 ? 1e-3F : 10.0F);
  return values;
}

// A rank's nodes, added from its shards as the tree says.
std::vector<Values> nodes_of(const ShardShare& share, size_t count) {
  ShardStack stack;
  std::vector<Values> nodes;
  for (int64_t i = 0; i < share.count(); ++i) {
    nodes.push_back(shard_values(share.first() + i, count));
    for (int64_t additions = stack.push({share.first() + i, 1}); additions > 0; --additions) {
      for (size_t v = 0; v < count; ++v) nodes[nodes.size() - 2][v] += nodes.back()[v];
      nodes.pop_back();
    }
  }
  return nodes;
}

std::vector<std::span<float>> spans_of(std::vector<Values>& nodes) { return {nodes.begin(), nodes.end()}; }

// What every rank has after its slices were gathered; all ranks must have the same.
Values sum_of(int64_t shards, int ranks, size_t count, bool everywhere) {
  std::vector<Values> sums(static_cast<size_t>(ranks));
  testing::run_ranks(ranks, [&](Communicator& world) {
    const ShardShare share{shards, world.rank(), ranks};
    std::vector<float> workspace(ShardSum::workspace_size(share, count));
    ShardSum sum(world, share, workspace);
    ThreadPool pool(1);
    std::vector<Values> nodes = nodes_of(share, count);
    if (everywhere) {
      sum.sum_everywhere(spans_of(nodes), pool);
    } else {
      sum.reduce_scatter(spans_of(nodes), slice_bounds(count, ranks), pool);
      all_gather_slices(world, nodes[0], slice_bounds(count, ranks));
    }
    sums[static_cast<size_t>(world.rank())] = nodes[0];
  });
  for (const Values& values : sums) EXPECT_EQ(values, sums[0]);
  return sums[0];
}

TEST(ShardSum, TheNumberOfRanksDoesNotChangeABit) {
  for (const int64_t shards : {2, 3, 4, 6, 8, 12})
    for (const size_t count : {size_t{1}, size_t{1000}, 3 * kSliceUnit + 7}) {
      const Values alone = sum_of(shards, 1, count, false);
      for (int ranks = 1; ranks <= shards; ++ranks) {
        if (shards % ranks != 0) continue;
        SCOPED_TRACE(std::to_string(shards) + " shards on " + std::to_string(ranks) + " ranks");
        EXPECT_EQ(sum_of(shards, ranks, count, false), alone);
        EXPECT_EQ(sum_of(shards, ranks, count, true), alone);
      }
    }
}

// The same sum in rounds, with an uneven division between the ranks: in parts, or of all values on every rank.
Values sum_in_rounds(int64_t shards, int ranks, size_t count, bool everywhere) {
  Values sum(count);
  testing::run_ranks(ranks, [&](Communicator& world) {
    const ShardShare share{shards, world.rank(), ranks};
    std::vector<float> workspace(ShardSum::workspace_size(share, count));
    ShardSum adder(world, share, workspace);
    ThreadPool pool(1);
    SliceBounds bounds = slice_bounds(count, ranks);
    for (int rank = 1; rank < ranks; ++rank) bounds[static_cast<size_t>(rank)] /= 2;
    const Slice own = slice(bounds, world.rank());
    std::vector<Values> nodes(
        static_cast<size_t>(share.most_nodes_after_a_round()), Values(everywhere ? count : own.count));
    const auto sums = spans_of(nodes);
    for (int64_t round = 0; round < share.count(); ++round) {
      Values shard = shard_values(round * ranks + world.rank(), count);
      if (everywhere) {
        adder.add_round_everywhere(round, shard, sums, pool);
        continue;
      }
      for (const Slice part : {Slice{count / 3, count - count / 3}, Slice{0, count / 3}})
        adder.add_round(round, std::span(shard).subspan(part.first, part.count), bounds, part, sums, pool,
            Communicator::Wait::kSoon);
    }
    if (everywhere && world.rank() == 0) sum = nodes[0];
    if (!everywhere) std::ranges::copy(nodes[0], sum.begin() + static_cast<std::ptrdiff_t>(own.first));
  });
  return sum;
}

TEST(ShardSum, RoundsAddInTheSameOrder) {
  for (const int64_t shards : {2, 3, 4, 6, 8, 12})
    for (const size_t count : {size_t{1}, 3 * kSliceUnit + 7, (size_t{5} << 16) + 5}) {
      const Values alone = sum_of(shards, 1, count, false);
      for (int ranks = 2; ranks <= shards; ++ranks) {
        if (shards % ranks != 0) continue;
        SCOPED_TRACE(std::to_string(shards) + " shards on " + std::to_string(ranks) + " ranks");
        EXPECT_EQ(sum_in_rounds(shards, ranks, count, false), alone);
        if (count < 65536) EXPECT_EQ(sum_in_rounds(shards, ranks, count, true), alone);
      }
    }
}

// More than a piece of the messages.
TEST(ShardSum, LongGradientsCrossInPieces) {
  const size_t count = (size_t{9} << 16) + 5;
  EXPECT_EQ(sum_of(6, 2, count, false), sum_of(6, 1, count, false));
  EXPECT_EQ(sum_of(4, 4, count, false), sum_of(4, 1, count, false));
}

TEST(ShardSum, IsTheSumOfAllShards) {
  const Values sum = sum_of(6, 3, 5, false);
  for (size_t i = 0; i < sum.size(); ++i) {
    double expected = 0;
    for (int64_t shard = 0; shard < 6; ++shard) expected += shard_values(shard, 5)[i];
    EXPECT_NEAR(sum[i], expected, 1e-4);
  }
}

TEST(ShardTree, AddsWhatIsComplete) {
  const auto nodes = [](int64_t shards, int rank, int ranks) { return ShardShare{shards, rank, ranks}.nodes_of(rank); };
  EXPECT_EQ(nodes(8, 1, 2), (std::vector<ShardNode>{{4, 4}}));
  EXPECT_EQ(nodes(6, 0, 2), (std::vector<ShardNode>{{0, 2}, {2, 1}}));
  EXPECT_EQ(nodes(6, 1, 2), (std::vector<ShardNode>{{3, 1}, {4, 2}}));
  EXPECT_EQ((ShardShare{1, 0, 1}.most_waiting()), 0);
  EXPECT_EQ((ShardShare{4, 0, 4}.most_waiting()), 0);
  EXPECT_EQ((ShardShare{8, 0, 1}.most_waiting()), 3);
  EXPECT_THROW(check_share({4, 0, 3}), Error);
}

TEST(Slices, CoverAllValuesOnce) {
  for (const size_t count : {size_t{0}, size_t{2}, size_t{7}, size_t{1000003}})
    for (const int size : {1, 2, 3, 8}) {
      size_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(slice(count, rank, size).first, next);
        next += slice(count, rank, size).count;
      }
      EXPECT_EQ(next, count);
    }
}
}  // namespace
}  // namespace linnet
