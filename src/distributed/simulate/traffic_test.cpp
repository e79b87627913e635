// The traffic that is told beforehand against the calls of comm/ themselves, made by a communicator that counts.
#include <gtest/gtest.h>
#include <algorithm>
#include <functional>
#include <mutex>
#include <vector>
#include "comm_testing.h"
#include "distributed/comm/shard_sum.h"
#include "distributed/comm/tensor_group.h"
#include "distributed/simulate/training_step.h"

namespace linnet {
namespace {
// Counts what goes through another communicator.
class CountingCommunicator : public Communicator {
 public:
  explicit CountingCommunicator(Communicator& world) : world_(world) {}
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, Wait wait) override {
    size_t sent = 0, received = 0;
    for (const auto& [to, bytes] : outgoing) sent += bytes.size();
    for (const auto& [from, bytes] : incoming) received += bytes.size();
    ++exchanges, sent_ += sent, received_ += received;
    world_.exchange(outgoing, incoming, wait);
  }
  double sent() const { return static_cast<double>(sent_); }
  double port() const { return static_cast<double>(std::max(sent_, received_)); }
  int64_t exchanges = 0;

 private:
  Communicator& world_;
  size_t sent_ = 0, received_ = 0;
};

// What `call` makes of each rank.
Traffic counted(int ranks, const std::function<void(Communicator& world)>& call) {
  Traffic traffic;
  std::mutex mutex;
  testing::run_ranks(ranks, [&](Communicator& world) {
    CountingCommunicator counting(world);
    call(counting);
    const std::lock_guard lock(mutex);
    traffic.exchanges = std::max(traffic.exchanges, counting.exchanges);
    traffic.port_bytes = std::max(traffic.port_bytes, counting.port());
    traffic.sent_bytes += counting.sent() / ranks;
  });
  return traffic;
}

void expect_equal(const Traffic& told, const Traffic& counted) {
  EXPECT_EQ(told.exchanges, counted.exchanges);
  // Of several exchanges, other ranks may be the busiest in each, by a value or two.
  EXPECT_NEAR(told.port_bytes, counted.port_bytes, 1e-5 * counted.port_bytes + 8);
  EXPECT_NEAR(told.sent_bytes, counted.sent_bytes, 1e-6 * counted.sent_bytes);
}

TEST(Traffic, ReduceScatterIsThatOfShardSum) {
  constexpr size_t kValues = 300'000;
  for (const auto& [ranks, shards] : {std::pair{2, 2}, {4, 4}, {3, 9}})
    for (const Slice part : {Slice{0, kValues}, {0, 90'000}, {120'000, 150'000}, {290'000, 10'000}}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, from " + std::to_string(part.first));
      const Traffic traffic = counted(ranks, [&](Communicator& world) {
        const ShardShare share{shards, world.rank(), world.size()};
        std::vector<float> workspace(ShardSum::workspace_size(share, kValues));
        ShardSum sum(world, share, workspace);
        std::vector<std::vector<float>> nodes(share.nodes_of(world.rank()).size(), std::vector<float>(kValues));
        const std::vector<std::span<float>> spans(nodes.begin(), nodes.end());
        ThreadPool pool(1);
        sum.reduce_scatter(spans, slice_bounds(kValues, ranks), part, pool, Communicator::Wait::kSoon);
      });
      expect_equal(reduce_scatter_traffic(kValues, part, {shards, 0, ranks}), traffic);
    }
}

TEST(Traffic, GatheredSlicesAndFewValuesAreThoseOfComm) {
  for (const int ranks : {2, 3, 4}) {
    expect_equal(gather_slices_traffic(100'000, ranks), counted(ranks, [&](Communicator& world) {
      std::vector<float> values(100'000);
      all_gather_slices(world, values, slice_bounds(values.size(), ranks));
    }));
    expect_equal(sum_everywhere_traffic(7, {ranks, 0, ranks}), counted(ranks, [&](Communicator& world) {
      const ShardShare share{ranks, world.rank(), ranks};
      std::vector<float> workspace(ShardSum::workspace_size(share, 7)), values(7);
      ShardSum sum(world, share, workspace);
      const std::span<float> node(values);
      ThreadPool pool(1);
      sum.sum_everywhere({&node, 1}, pool);
    }));
  }
}

TEST(Traffic, TensorGroupsExchangeWhatIsTold) {
  for (const int ranks : {2, 3, 4})
    for (const size_t values : {size_t{1}, size_t{900}, size_t{5'000}, size_t{700'001}}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, values " + std::to_string(values));
      expect_equal(all_reduce_traffic(values, ranks), counted(ranks, [&](Communicator& world) {
        std::vector<float> sums(values), scratch(sum_scratch_size(values, ranks));
        ThreadPool pool(1);
        sum_over_ranks(world, sums, scratch, pool);
      }));
      expect_equal(all_gather_traffic(values, ranks), counted(ranks, [&](Communicator& world) {
        std::vector<float> mine(values), all(values * static_cast<size_t>(ranks));
        all_gather(world, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
      }));
    }
}

// Slices of whole units of 4,096 values: an all-reduce moves as many bytes as a ring does.
TEST(Traffic, AnAllReduceOfBalancedSlicesMovesTheBytesOfARing) {
  for (const int ranks : {2, 4, 8, 64}) {
    const size_t values = size_t{kSliceUnit} * 64;
    const double bytes = 4.0 * static_cast<double>(values), n = ranks;
    Traffic traffic = reduce_scatter_traffic(values, {0, values}, {ranks, 0, ranks});
    traffic += gather_slices_traffic(values, ranks);
    // A slice of two ranks is received in two pieces.
    EXPECT_EQ(traffic.exchanges, ranks == 2 ? 3 : 2);
    EXPECT_DOUBLE_EQ(traffic.port_bytes, 2 * (n - 1) / n * bytes);
    EXPECT_DOUBLE_EQ(traffic.sent_bytes, 2 * (n - 1) / n * bytes);
  }
}

// Every value of a bucket goes to the ranks whose slices have it: one rank receives it from all others.
TEST(Traffic, ABucketInOneSliceIsReceivedByOneRank) {
  const size_t values = size_t{kSliceUnit} * 16;
  const Traffic traffic = reduce_scatter_traffic(values, {0, values / 4}, {4, 0, 4});
  EXPECT_DOUBLE_EQ(traffic.port_bytes, 3 * values);  // a quarter of 4-byte values, three times
}

TEST(Traffic, OneRankSendsNothing) {
  EXPECT_EQ(reduce_scatter_traffic(1000, {0, 1000}, {4, 0, 1}).exchanges, 0);
  EXPECT_EQ(gather_slices_traffic(1000, 1).port_bytes, 0);
  EXPECT_EQ(all_reduce_traffic(1000, 1).exchanges, 0);
}
}  // namespace
}  // namespace linnet
