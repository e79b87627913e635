#include "distributed/comm/shard_sum.h"
#include <algorithm>
#include <string>
#include "base/error.h"

namespace linnet {

namespace {

// Floats of a node that are received at once: on the host such that they are added while they are in the caches, on a
// device such that starting a message takes little of its time.
constexpr size_t kPiece = size_t{1} << 16, kDevicePiece = size_t{1} << 22;
constexpr size_t kTask = size_t{1} << 14;  // floats that a thread adds at once

size_t nodes_of_others(const ShardShare& share) {
  size_t count = 0;
  for (int rank = 0; rank < share.ranks; ++rank)
    if (rank != share.rank) count += share.nodes_of(rank).size();
  return count;
}

std::span<const std::byte> bytes_of_shard(std::span<const float> values) { return std::as_bytes(values); }

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

void add_values(DeviceRanks* device, ThreadPool& pool, float* into, const float* from, size_t count) {
  if (device) device->add(into, from, count);
  else add_values(pool, into, from, count);
}

void fill_values(ThreadPool& pool, std::span<float> values, float value) {
  in_tasks(pool, values.size(), [&](size_t begin, size_t end) {
    std::fill(values.begin() + static_cast<std::ptrdiff_t>(begin), values.begin() + static_cast<std::ptrdiff_t>(end),
              value);
  });
}

void move_values(ThreadPool& pool, std::span<float> into, std::span<float> from) {
  in_tasks(pool, from.size(), [&](size_t begin, size_t end) {
    std::copy(from.begin() + begin, from.begin() + end, into.begin() + begin);
    std::fill(from.begin() + begin, from.begin() + end, 0.0F);
  });
}

size_t ShardSum::workspace_size(const ShardShare& share, size_t values, bool on_device) {
  return nodes_of_others(share) * std::min(on_device ? kDevicePiece : kPiece, std::max<size_t>(values, 1));
}

ShardSum::ShardSum(Communicator& world, const ShardShare& share, std::span<float> workspace)
    : ShardSum(world, nullptr, share, workspace) {}

ShardSum::ShardSum(DeviceRanks& device, const ShardShare& share, std::span<float> workspace)
    : ShardSum(device.messages(), &device, share, workspace) {}

ShardSum::ShardSum(Communicator& world, DeviceRanks* device, const ShardShare& share, std::span<float> workspace)
    : world_(world), device_(device), share_(share), workspace_(workspace), piece_(device ? kDevicePiece : kPiece) {
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
  float* received = workspace_.data();
  for (int rank = 0; rank < share_.ranks; ++rank) {
    const std::vector<ShardNode>& of_rank = nodes_of_[static_cast<size_t>(rank)];
    for (size_t i = 0; i < of_rank.size(); ++i) {
      values_.push_back(rank == share_.rank ? nodes[i].data() + first_of_mine : received);
      if (rank != share_.rank) received += count;
      for (int64_t additions = stack_.push(of_rank[i]); additions > 0; --additions) add_last_two(pool, count);
    }
  }
  while (values_.size() > 1) add_last_two(pool, count);
  float* sum = nodes[0].data() + first_of_mine;
  if (values_[0] != sum) copy(sum, values_[0], count);
}

void ShardSum::add_last_two(ThreadPool& pool, size_t count) {
  const float* last = values_.back();
  values_.pop_back();
  add_values(device_, pool, values_.back(), last, count);
}

void ShardSum::copy(float* into, const float* from, size_t count) {
  if (device_) device_->copy(into, from, count);
  else std::copy_n(from, count, into);
}

// `count` values of a round's shards, of which this rank's begin at `mine`, and those of the waiting nodes at `first`.
void ShardSum::exchange_and_add_round(int64_t round, float* mine, std::span<const std::span<float>> sums, size_t first,
                                      size_t count, ThreadPool& pool, Communicator::Wait wait) {
  incoming_.clear();
  float* received = workspace_.data();
  for (int rank = 0; rank < share_.ranks; ++rank) {
    if (rank == share_.rank) continue;
    incoming_.push_back({rank, std::as_writable_bytes(std::span(received, count))});
    received += count;
  }
  world_.exchange(outgoing_, incoming_, wait);

  stack_.clear(), values_.clear();
  for (int64_t shard = 0; shard < round * share_.ranks; ++shard) stack_.push({shard, 1});
  for (size_t i = 0; i < stack_.nodes().size(); ++i) values_.push_back(sums[i].data() + first);
  received = workspace_.data();
  for (int rank = 0; rank < share_.ranks; ++rank) {
    values_.push_back(rank == share_.rank ? mine : received);
    if (rank != share_.rank) received += count;
    for (int64_t additions = stack_.push({round * share_.ranks + rank, 1}); additions > 0; --additions)
      add_last_two(pool, count);
  }
  const bool is_last = round + 1 == share_.count();
  while (is_last && values_.size() > 1) add_last_two(pool, count);
  for (size_t i = 0; i < values_.size(); ++i)
    if (float* sum = sums[i].data() + first; values_[i] != sum) copy(sum, values_[i], count);
}

void ShardSum::reduce_scatter(std::span<const std::span<float>> nodes, const SliceBounds& bounds, ThreadPool& pool) {
  reduce_scatter(nodes, bounds, {0, nodes[0].size()}, pool, Communicator::Wait::kSoon);
}

namespace {

// body(piece), where piece(rank) is what the rank owns of a part, cut such that all messages fit into the workspace.
template <class Body>
void in_pieces(const SliceBounds& bounds, Slice part, int ranks, size_t piece_size, const Body& body) {
  const auto share = [&](int rank) { return overlap(slice(bounds, rank), part); };
  size_t longest = 0;
  for (int rank = 0; rank < ranks; ++rank) longest = std::max(longest, share(rank).count);
  const size_t most = ranks == 1 ? longest : piece_size;
  for (size_t done = 0; done < longest; done += most)
    body([&](int rank) {
      const Slice own = share(rank);
      return Slice{own.first + std::min(done, own.count), std::min(most, own.count - std::min(done, own.count))};
    });
}

}  // namespace

void ShardSum::reduce_scatter(std::span<const std::span<float>> nodes, const SliceBounds& bounds, Slice part,
                              ThreadPool& pool, Communicator::Wait wait) {
  in_pieces(bounds, part, share_.ranks, piece_, [&](const auto& piece) {
    outgoing_.clear();
    for (int rank = 0; rank < share_.ranks; ++rank)
      for (size_t i = 0; rank != share_.rank && i < nodes.size(); ++i)
        outgoing_.push_back({rank, bytes_of_shard(nodes[i].subspan(piece(rank).first, piece(rank).count))});
    const Slice mine = piece(share_.rank);
    exchange_and_add(nodes, mine.first, mine.count, pool, wait);
  });
}

void ShardSum::add_round(int64_t round, std::span<float> shard, const SliceBounds& bounds, Slice part,
                         std::span<const std::span<float>> sums, ThreadPool& pool, Communicator::Wait wait) {
  const size_t own_first = slice(bounds, share_.rank).first;
  in_pieces(bounds, part, share_.ranks, piece_, [&](const auto& piece) {
    const auto values = [&](int rank) {
      const Slice p = piece(rank);
      return p.count == 0 ? std::span<float>{} : shard.subspan(p.first - part.first, p.count);
    };
    outgoing_.clear();
    for (int rank = 0; rank < share_.ranks; ++rank)
      if (rank != share_.rank) outgoing_.push_back({rank, bytes_of_shard(values(rank))});
    const std::span<float> mine = values(share_.rank);
    const size_t first = mine.empty() ? 0 : piece(share_.rank).first - own_first;
    exchange_and_add_round(round, mine.data(), sums, first, mine.size(), pool, wait);
  });
}

void ShardSum::add_round_everywhere(int64_t round, std::span<float> shard, std::span<const std::span<float>> sums,
                                    ThreadPool& pool) {
  if (shard.size() * static_cast<size_t>(share_.ranks - 1) > workspace_.size())
    fail_internal("add_round_everywhere is for few values");
  outgoing_.clear();
  for (int rank = 0; rank < share_.ranks; ++rank)
    if (rank != share_.rank) outgoing_.push_back({rank, bytes_of_shard(shard)});
  exchange_and_add_round(round, shard.data(), sums, 0, shard.size(), pool, Communicator::Wait::kSoon);
}

void ShardSum::sum_everywhere(std::span<const std::span<float>> nodes, ThreadPool& pool) {
  const size_t values = nodes[0].size();
  if (values * nodes_of_others(share_) > workspace_.size()) fail_internal("sum_everywhere is for few values");
  outgoing_.clear();
  for (int rank = 0; rank < share_.ranks; ++rank)
    for (size_t i = 0; rank != share_.rank && i < nodes.size(); ++i)
      outgoing_.push_back({rank, bytes_of_shard(nodes[i])});
  exchange_and_add(nodes, 0, values, pool, Communicator::Wait::kSoon);
}

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
