// Adds the gradients of a step's shards over the ranks in the order of a tree: the bits of the sum depend on the number
// of shards alone. Each rank owns a slice (SliceBounds in distributed/comm/communicator.h), receives the other ranks'
// nodes for it piece by piece, and adds them. So every value crosses between two ranks once per node; a rank has one
// node if all numbers are powers of two.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>
#include "base/thread_pool.h"
#include "distributed/comm/communicator.h"

namespace linnet {
// The shards of a step are the leaves of a binary tree: shards 2i and 2i + 1 are added first, then pairs of those sums,
// and so on; what has no partner at the end is added from the right. A rank computes consecutive shards and adds the
// complete subtrees among them (its nodes); the rest is added where the nodes of all ranks meet. So the number of ranks
// never decides what is added to what.

// The sum of shards [first, first + count).
struct ShardNode {
  int64_t first, count;
  bool operator==(const ShardNode&) const = default;
};

// The nodes that wait for their right sibling, from left to right.
class ShardStack {
 public:
  // Appends a node. Returns how often the caller has to add the values of the last two nodes.
  int64_t push(ShardNode node);
  const std::vector<ShardNode>& nodes() const { return nodes_; }
  void clear() { nodes_.clear(); }

 private:
  std::vector<ShardNode> nodes_;
};

struct ShardShare {
  int64_t shards = 1;  // of a step, on all ranks together
  int rank = 0, ranks = 1;

  int64_t count() const { return shards / ranks; }  // of this rank
  int64_t first() const { return count() * rank; }
  // The nodes of `rank` after all additions that need no other rank.
  std::vector<ShardNode> nodes_of(int rank) const;
  // The most nodes that wait while this rank computes another shard.
  int64_t most_waiting() const;
  // The most nodes left after a round, if in each of count() rounds k rank r computes shard k * ranks + r.
  int64_t most_nodes_after_a_round() const;
};
// What is left of consecutive shards after all additions within them.
std::vector<ShardNode> nodes_of_shards(int64_t first, int64_t count);

// Throws a user error if the ranks cannot divide the shards evenly.
void check_share(const ShardShare& share);

// Floats of a node received at once on the host, few enough for the cache.
constexpr size_t kShardPiece = size_t{1} << 16;

class ShardSum {
 public:
  // `workspace`: workspace_size() floats; it must outlive this.
  ShardSum(Communicator& world, const ShardShare& share, std::span<float> workspace)
      : ShardSum(world, nullptr, share, workspace) {}
  // For values and workspace on a device: everything is queued there, and pools are not used.
  ShardSum(DeviceRanks& device, const ShardShare& share, std::span<float> workspace)
      : ShardSum(device.messages(), &device, share, workspace) {}
  // Floats for received pieces; 0 with one rank.
  static size_t workspace_size(const ShardShare& share, size_t values, bool on_device = false);

  // nodes[i]: the values of this rank's i-th node, all of one size. nodes[0] receives the sum of all shards for this
  // rank's slice; the same slice of the other nodes is overwritten. Other slices stay.
  void reduce_scatter(std::span<const std::span<float>> nodes, const SliceBounds& bounds, ThreadPool& pool) {
    reduce_scatter(nodes, bounds, {0, nodes[0].size()}, pool, Communicator::Wait::kSoon);
  }
  // The same for the values `part` alone.
  void reduce_scatter(std::span<const std::span<float>> nodes, const SliceBounds& bounds, Slice part, ThreadPool& pool,
      Communicator::Wait wait);
  // The sum of all values on every rank, in nodes[0]. For few values: each rank sends all of its own to all others.
  void sum_everywhere(std::span<const std::span<float>> nodes, ThreadPool& pool);

  // The same sum where no rank keeps what others own (ZeRO stage 2): in round k = 0, 1, ... rank r has shard k * ranks
  // + r, of which `part` lies at `shard`, which is overwritten. sums[i]: this rank's slice of the i-th remaining node,
  // most_nodes_after_a_round() of them; in the end sums[0] has the sum.
  void add_round(int64_t round, std::span<float> shard, const SliceBounds& bounds, Slice part,
      std::span<const std::span<float>> sums, ThreadPool& pool, Communicator::Wait wait);
  // The same for few values, with all of them on every rank.
  void add_round_everywhere(
      int64_t round, std::span<float> shard, std::span<const std::span<float>> sums, ThreadPool& pool);

 private:
  ShardSum(Communicator& world, DeviceRanks* device, const ShardShare& share, std::span<float> workspace);
  template <class Values> void list_outgoing(size_t nodes, const Values& values);
  template <class Mine> void exchange_and_add(const std::vector<std::vector<ShardNode>>& nodes, const Mine& mine,
      size_t count, bool all, ThreadPool& pool, Communicator::Wait wait);
  void add_nodes(
      std::span<const std::span<float>> nodes, size_t first, size_t count, ThreadPool& pool, Communicator::Wait wait);
  void exchange_and_add_round(int64_t round, float* mine, std::span<const std::span<float>> sums, size_t first,
      size_t count, ThreadPool& pool, Communicator::Wait wait);
  void add_last_two(ThreadPool& pool, size_t count);
  void copy(float* into, const float* from, size_t count);

  Communicator& world_;
  DeviceRanks* const device_ = nullptr;
  const ShardShare share_;
  const std::span<float> workspace_;
  const size_t piece_;                                          // floats of a node that are received at once
  std::vector<std::vector<ShardNode>> nodes_of_, round_nodes_;  // of each rank
  std::vector<Communicator::Outgoing> outgoing_;
  std::vector<Communicator::Incoming> incoming_;
  std::vector<float*> values_;  // of the nodes on the stack
  ShardStack stack_;
};

// body(begin, end) over ranges of at most `most` that cover [0, count) once. A single range is left to the caller's
// thread, and is no stop point.
template <class Body> void in_ranges(ThreadPool& pool, size_t count, size_t most, const Body& body) {
  if (count <= most) return body(size_t{0}, count);
  for_steps(pool, static_cast<int64_t>(count), static_cast<int64_t>(most), body);
}

void add_values(ThreadPool& pool, float* into, const float* from, size_t count);  // into[i] += from[i]
// `device` null: values on the host.
void add_values(DeviceRanks* device, ThreadPool& pool, float* into, const float* from, size_t count);
void fill_values(ThreadPool& pool, std::span<float> values, float value);
// Copies `from` to `into` and zeroes it.
void move_values(ThreadPool& pool, std::span<float> into, std::span<float> from);
}  // namespace linnet
