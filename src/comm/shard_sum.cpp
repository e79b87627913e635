#include "comm/shard_sum.h"

#include <algorithm>

#include "base/error.h"

namespace linnet {
namespace {

constexpr size_t kPiece = size_t{1} << 16;  // floats of a node that are received at once
constexpr size_t kTask = size_t{1} << 14;   // floats that a thread adds at once

size_t nodes_of_others(const ShardShare& share) {
  size_t count = 0;
  for (int rank = 0; rank < share.ranks; ++rank)
    if (rank != share.rank) count += share.nodes_of(rank).size();
  return count;
}

std::span<const std::byte> bytes_of(std::span<const float> values) { return std::as_bytes(values); }

// body(begin, end) over ranges that cover [0, count) once.
template <class Body>
void in_tasks(ThreadPool& pool, size_t count, const Body& body) {
  if (count <= kTask) return body(0, count);
  pool.run(static_cast<int64_t>((count + kTask - 1) / kTask), [&](int64_t task, int) {
    const size_t begin = static_cast<size_t>(task) * kTask;
    body(begin, std::min(count, begin + kTask));
  });
}

}  // namespace

void add_values(ThreadPool& pool, float* into, const float* from, size_t count) {
  in_tasks(pool, count, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) into[i] += from[i];
  });
}

void move_values(ThreadPool& pool, std::span<float> into, std::span<float> from) {
  in_tasks(pool, from.size(), [&](size_t begin, size_t end) {
    std::copy(from.begin() + begin, from.begin() + end, into.begin() + begin);
    std::fill(from.begin() + begin, from.begin() + end, 0.0F);
  });
}

size_t ShardSum::workspace_size(const ShardShare& share, size_t values) {
  return nodes_of_others(share) * std::min(kPiece, std::max<size_t>(values, 1));
}

ShardSum::ShardSum(Communicator& world, const ShardShare& share, std::span<float> workspace)
    : world_(world), share_(share), workspace_(workspace) {
  size_t all = 0;
  for (int rank = 0; rank < share.ranks; ++rank) {
    nodes_of_.push_back(share.nodes_of(rank));
    all += nodes_of_.back().size();
  }
  outgoing_.reserve(all * static_cast<size_t>(share.ranks));
  incoming_.reserve(all);
  values_.reserve(all);
}

// After the messages of all ranks were listed: receives the other ranks' nodes of `count` values, and adds all nodes of
// the tree. Those of this rank begin at `first_of_mine` of each of `nodes`; the sum is left in the first one.
void ShardSum::exchange_and_add(std::span<const std::span<float>> nodes, size_t first_of_mine, size_t count,
                                ThreadPool& pool, Communicator::Wait wait) {
  incoming_.clear();
  float* location = workspace_.data();
  for (int rank = 0; rank < share_.ranks; ++rank)
    for (size_t i = 0; rank != share_.rank && i < nodes_of_[static_cast<size_t>(rank)].size(); ++i, location += count)
      incoming_.push_back({rank, std::as_writable_bytes(std::span(location, count))});
  world_.exchange(outgoing_, incoming_, wait);

  stack_.clear(), values_.clear();
  const auto add_last_two = [&] {
    const float* last = values_.back();
    values_.pop_back();
    add_values(pool, values_.back(), last, count);
  };
  float* received = workspace_.data();
  for (int rank = 0; rank < share_.ranks; ++rank) {
    const std::vector<ShardNode>& of_rank = nodes_of_[static_cast<size_t>(rank)];
    for (size_t i = 0; i < of_rank.size(); ++i) {
      values_.push_back(rank == share_.rank ? nodes[i].data() + first_of_mine : received);
      if (rank != share_.rank) received += count;
      for (int64_t additions = stack_.push(of_rank[i]); additions > 0; --additions) add_last_two();
    }
  }
  while (values_.size() > 1) add_last_two();
  float* sum = nodes[0].data() + first_of_mine;
  if (values_[0] != sum) std::copy_n(values_[0], count, sum);
}

void ShardSum::reduce_scatter(std::span<const std::span<float>> nodes, ThreadPool& pool) {
  reduce_scatter(nodes, {0, nodes[0].size()}, pool, Communicator::Wait::kSoon);
}

void ShardSum::reduce_scatter(std::span<const std::span<float>> nodes, Slice part, ThreadPool& pool,
                              Communicator::Wait wait) {
  const auto share = [&](int rank) { return overlap(slice(nodes[0].size(), rank, share_.ranks), part); };
  size_t longest = 0;
  for (int rank = 0; rank < share_.ranks; ++rank) longest = std::max(longest, share(rank).count);
  const size_t most = share_.ranks == 1 ? longest : kPiece;
  for (size_t done = 0; done < longest; done += most) {
    const auto piece = [&](int rank) {
      const Slice own = share(rank);
      return Slice{own.first + std::min(done, own.count), std::min(most, own.count - std::min(done, own.count))};
    };
    outgoing_.clear();
    for (int rank = 0; rank < share_.ranks; ++rank)
      for (size_t i = 0; rank != share_.rank && i < nodes.size(); ++i)
        outgoing_.push_back({rank, bytes_of(nodes[i].subspan(piece(rank).first, piece(rank).count))});
    const Slice mine = piece(share_.rank);
    exchange_and_add(nodes, mine.first, mine.count, pool, wait);
  }
}

void ShardSum::sum_everywhere(std::span<const std::span<float>> nodes, ThreadPool& pool) {
  const size_t values = nodes[0].size();
  if (values * nodes_of_others(share_) > workspace_.size()) fail_internal("sum_everywhere is for few values");
  outgoing_.clear();
  for (int rank = 0; rank < share_.ranks; ++rank)
    for (size_t i = 0; rank != share_.rank && i < nodes.size(); ++i) outgoing_.push_back({rank, bytes_of(nodes[i])});
  exchange_and_add(nodes, 0, values, pool, Communicator::Wait::kSoon);
}

}  // namespace linnet
