// Adds the gradients of all shards of a step over the ranks, in the order of a tree: the bits of the sum depend on the
// number of shards alone.
//
// Each rank owns a slice (SliceBounds in distributed/comm/communicator.h). It receives the nodes of all other ranks for
// that slice, piece by piece, and adds them: every value crosses between two ranks once for each node, of which a rank
// has one where numbers are powers of two.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>
#include "base/thread_pool.h"
#include "distributed/comm/communicator.h"

namespace linnet {

// The shards of a step are the leaves of a binary tree: shards 2i and 2i + 1 are added first, then pairs of those sums,
// and so on; what has no partner at the end is added from the right. A rank computes consecutive shards and adds what
// is complete among them (its nodes); the rest is added where the nodes of all ranks meet. So the number of ranks
// decides who adds, and never what is added to what.

// The sum of the shards [first, first + count).
struct ShardNode {
  int64_t first, count;
  bool operator==(const ShardNode&) const = default;
};

// A stack of the nodes that wait for their right sibling, from left to right.
class ShardStack {
 public:
  // Adds a node behind those so far. Returns how often the caller has to add the values of the last two nodes.
  int64_t push(ShardNode node);
  const std::vector<ShardNode>& nodes() const { return nodes_; }
  void clear() { nodes_.clear(); }

 private:
  std::vector<ShardNode> nodes_;
};

// How the shards of a step are divided.
struct ShardShare {
  int64_t shards = 1;  // of a step, on all ranks together
  int rank = 0, ranks = 1;

  int64_t count() const { return shards / ranks; }  // of this rank
  int64_t first() const { return count() * rank; }
  // What `rank` has when its shards are added as far as the tree allows without the other ranks.
  std::vector<ShardNode> nodes_of(int rank) const;
  // The most nodes that wait while this rank computes a further shard.
  int64_t most_waiting() const;
  // Where each rank computes one shard in each of count() rounds, and in round k rank r has shard k * ranks + r: how
  // many nodes there are at most after a round.
  int64_t most_nodes_after_a_round() const;
};
// What is left of consecutive shards when they are added as far as the tree allows.
std::vector<ShardNode> nodes_of_shards(int64_t first, int64_t count);

// User error in one line when the ranks cannot divide the shards evenly.
void check_share(const ShardShare& share);

class ShardSum {
 public:
  // `workspace`: workspace_size() floats; it must outlive this.
  ShardSum(Communicator& world, const ShardShare& share, std::span<float> workspace)
      : ShardSum(world, nullptr, share, workspace) {}
  // Of values that lie, as the workspace does, on a device: everything is queued there, and pools are not used.
  ShardSum(DeviceRanks& device, const ShardShare& share, std::span<float> workspace)
      : ShardSum(device.messages(), &device, share, workspace) {}
  // Floats for received pieces; 0 with one rank.
  static size_t workspace_size(const ShardShare& share, size_t values, bool on_device = false);

  // nodes[i]: the values of this rank's i-th node, all of one size. The sum over all shards of this rank's slice comes
  // into nodes[0]; the same slice of the other nodes is scratch memory. Other slices stay as they are.
  void reduce_scatter(std::span<const std::span<float>> nodes, const SliceBounds& bounds, ThreadPool& pool) {
    reduce_scatter(nodes, bounds, {0, nodes[0].size()}, pool, Communicator::Wait::kSoon);
  }
  // The same for the values `part` alone.
  void reduce_scatter(std::span<const std::span<float>> nodes, const SliceBounds& bounds, Slice part, ThreadPool& pool,
                      Communicator::Wait wait);
  // The sum of all values on every rank, in nodes[0], for few of them: each rank sends everything to all others.
  void sum_everywhere(std::span<const std::span<float>> nodes, ThreadPool& pool);

  // The same sum where no rank keeps what others own (ZeRO stage 2): in round k = 0, 1, ... rank r has shard
  // k * ranks + r, of which `part` lies at `shard`, which is written over. sums[i]: this rank's slice of the i-th node
  // that the rounds so far have left, most_nodes_after_a_round() of them; at last sums[0] has the sum.
  void add_round(int64_t round, std::span<float> shard, const SliceBounds& bounds, Slice part,
                 std::span<const std::span<float>> sums, ThreadPool& pool, Communicator::Wait wait);
  // The same of few values, with all of them on every rank.
  void add_round_everywhere(int64_t round, std::span<float> shard, std::span<const std::span<float>> sums,
                            ThreadPool& pool);

 private:
  ShardSum(Communicator& world, DeviceRanks* device, const ShardShare& share, std::span<float> workspace);
  template <class Values>
  void list_outgoing(size_t nodes, const Values& values);
  template <class Mine>
  void exchange_and_add(const std::vector<std::vector<ShardNode>>& nodes, const Mine& mine, size_t count, bool all,
                        ThreadPool& pool, Communicator::Wait wait);
  void add_nodes(std::span<const std::span<float>> nodes, size_t first, size_t count, ThreadPool& pool,
                 Communicator::Wait wait);
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

// Calls body(begin, end) for ranges of at most `most` that cover [0, count) once, by the threads of the pool.
template <class Body>
void in_ranges(ThreadPool& pool, size_t count, size_t most, const Body& body) {
  if (count <= most) return body(size_t{0}, count);
  pool.run(static_cast<int64_t>((count + most - 1) / most), [&](int64_t task, int) {
    const size_t begin = static_cast<size_t>(task) * most;
    body(begin, std::min(count, begin + most));
  });
}

// into[i] += from[i]
void add_values(ThreadPool& pool, float* into, const float* from, size_t count);
// The same of values on `device`, or on the host where it is null.
void add_values(DeviceRanks* device, ThreadPool& pool, float* into, const float* from, size_t count);
void fill_values(ThreadPool& pool, std::span<float> values, float value);
// Copies `from` to `into` and sets it to zero.
void move_values(ThreadPool& pool, std::span<float> into, std::span<float> from);

}  // namespace linnet
