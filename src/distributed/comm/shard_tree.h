// The fixed order in which the results of a step's shards are added, whatever the number of ranks that computed them.
//
// The shards of a step are the leaves of a binary tree: shards 2i and 2i + 1 are added first, then pairs of those sums,
// and so on; what has no partner at the end is added from the right. A rank computes consecutive shards and adds what
// is complete among them (its nodes); the rest of the tree is added where the nodes of all ranks meet. So the number of
// ranks decides who adds, and never what is added to what.
#pragma once
#include <cstdint>
#include <vector>

namespace linnet {

// The sum of the shards [first, first + count).
struct ShardNode {
  int64_t first, count;
  bool operator==(const ShardNode&) const = default;
};

// Whether the tree adds the two, of which `right` follows `left`.
bool are_siblings(const ShardNode& left, const ShardNode& right);

// A stack of the nodes that wait for their right sibling, from left to right.
class ShardStack {
 public:
  // Adds a node behind those so far. While the tree adds the last two, add() returns how often that is: the caller adds
  // the values of the last two nodes as many times.
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
  // many nodes there are after so many rounds, and at most.
  std::vector<ShardNode> nodes_after(int64_t rounds) const;
  int64_t most_nodes_after_a_round() const;
};

// User error in one line when the ranks cannot divide the shards evenly.
void check_share(const ShardShare& share);

}  // namespace linnet
