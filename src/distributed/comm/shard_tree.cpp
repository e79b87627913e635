#include "distributed/comm/shard_tree.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace linnet {

bool are_siblings(const ShardNode& left, const ShardNode& right) {
  return left.count == right.count && left.first + left.count == right.first && left.first % (2 * left.count) == 0;
}

int64_t ShardStack::push(ShardNode node) {
  nodes_.push_back(node);
  int64_t additions = 0;
  while (nodes_.size() > 1 && are_siblings(nodes_[nodes_.size() - 2], nodes_.back())) {
    nodes_.pop_back();
    nodes_.back().count *= 2;
    ++additions;
  }
  return additions;
}

std::vector<ShardNode> ShardShare::nodes_of(int rank) const {
  ShardStack stack;
  for (int64_t i = 0; i < count(); ++i) stack.push({count() * rank + i, 1});
  return stack.nodes();
}

int64_t ShardShare::most_waiting() const {
  ShardStack stack;
  size_t most = 0;
  for (int64_t i = 0; i < count(); ++i) {
    most = std::max(most, stack.nodes().size());
    stack.push({first() + i, 1});
  }
  return static_cast<int64_t>(most);
}

std::vector<ShardNode> ShardShare::nodes_after(int64_t rounds) const {
  ShardStack stack;
  for (int64_t shard = 0; shard < rounds * ranks; ++shard) stack.push({shard, 1});
  return stack.nodes();
}

int64_t ShardShare::most_nodes_after_a_round() const {
  size_t most = 1;  // the sum of all shards
  for (int64_t rounds = 1; rounds < count(); ++rounds) most = std::max(most, nodes_after(rounds).size());
  return static_cast<int64_t>(most);
}

void check_share(const ShardShare& share) {
  if (share.shards % share.ranks == 0) return;
  fail_user(std::to_string(share.ranks) + " ranks cannot share data_shards = " + std::to_string(share.shards) +
            " evenly; the number of ranks must divide it");
}

}  // namespace linnet
