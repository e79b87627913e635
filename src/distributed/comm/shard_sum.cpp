#include "distributed/comm/shard_sum.h"
#include <utility>
#include "base/fail.h"

namespace linnet {
namespace {
constexpr size_t kDevicePiece = size_t{1} << 22;  // floats of a node received at once: they amortize a message
constexpr size_t kTask = size_t{1} << 14;         // floats that a thread adds at once

size_t nodes_of_others(const ShardShare& share) {
  return sum_of<size_t>(share.ranks, [&](int rank) { return rank == share.rank ? 0 : share.nodes_of(rank).size(); });
}

// Whether the tree adds the two; `right` follows `left`.
bool are_siblings(const ShardNode& left, const ShardNode& right) {
  return left.count == right.count && left.first + left.count == right.first && left.first % (2 * left.count) == 0;
}

// Calls body(piece) for pieces so small that all messages fit the workspace; piece(rank) is what the rank owns of it.
template <class Body>
void in_pieces(const SliceBounds& bounds, Slice part, int ranks, size_t piece_size, const Body& body) {
  const auto share = [&](int rank) { return overlap(slice(bounds, rank), part); };
  const size_t longest = max_of<size_t>(ranks, [&](int rank) { return share(rank).count; });
  const size_t most = ranks == 1 ? longest : piece_size;
  for (size_t done = 0; done < longest; done += most)
    body([&](int rank) {
      const Slice own = share(rank);
      return Slice{own.first + std::min(done, own.count), std::min(most, own.count - std::min(done, own.count))};
    });
}
}  // namespace

void add_values(ThreadPool& pool, float* into, const float* from, size_t count) {
  in_ranges(pool, count, kTask, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) into[i] += from[i];
  });
}

void add_values(DeviceRanks* device, ThreadPool& pool, float* into, const float* from, size_t count) {
  if (device) device->add(into, from, count);
  else add_values(pool, into, from, count);
}

void fill_values(ThreadPool& pool, std::span<float> values, float value) {
  in_ranges(pool, values.size(), kTask,
      [&](size_t begin, size_t end) { std::ranges::fill(values.subspan(begin, end - begin), value); });
}

void move_values(ThreadPool& pool, std::span<float> into, std::span<float> from) {
  in_ranges(pool, from.size(), kTask, [&](size_t begin, size_t end) {
    const std::span<float> part = from.subspan(begin, end - begin);
    std::ranges::copy(part, into.subspan(begin).begin());
    std::ranges::fill(part, 0.0F);
  });
}

size_t ShardSum::workspace_size(const ShardShare& share, size_t values, bool on_device) {
  return nodes_of_others(share) * std::min(on_device ? kDevicePiece : kShardPiece, std::max<size_t>(values, 1));
}

ShardSum::ShardSum(Communicator& world, DeviceRanks* device, const ShardShare& share, std::span<float> workspace)
    : world_(world), device_(device), share_(share), workspace_(workspace),
      piece_(device ? kDevicePiece : kShardPiece) {
  nodes_of_ = mapped(share.ranks, [&](int rank) { return share.nodes_of(rank); });
  const auto all = sum_of<size_t>(nodes_of_, [](const auto& nodes) { return nodes.size(); });
  round_nodes_.assign(share.ranks, {ShardNode{}});
  outgoing_.reserve(all * static_cast<size_t>(share.ranks));
  incoming_.reserve(all);
  values_.reserve(all);
}

// Lists messages to all other ranks; values(node) are this rank's.
template <class Values> void ShardSum::list_outgoing(size_t nodes, const Values& values) {
  outgoing_.clear();
  for (int rank = 0; rank < share_.ranks; ++rank)
    for (size_t i = 0; rank != share_.rank && i < nodes; ++i)
      outgoing_.push_back({rank, std::as_bytes(std::span<const float>(values(rank, i)))});
}

// After the messages were listed: receives the other ranks' nodes of `count` values and adds all nodes, this rank's at
// mine(i), to those on the stack in the tree's order; with `all`, to one sum.
template <class Mine> void ShardSum::exchange_and_add(const std::vector<std::vector<ShardNode>>& nodes,
    const Mine& mine, size_t count, bool all, ThreadPool& pool, Communicator::Wait wait) {
  incoming_.clear();
  float* received = workspace_.data();
  for (int rank = 0; rank < share_.ranks; ++rank)
    for (size_t i = 0; rank != share_.rank && i < nodes[rank].size(); ++i, received += count)
      incoming_.push_back({rank, std::as_writable_bytes(std::span(received, count))});
  world_.exchange(outgoing_, incoming_, wait);
  received = workspace_.data();
  for (int rank = 0; rank < share_.ranks; ++rank)
    for (size_t i = 0; i < nodes[rank].size(); ++i) {
      values_.push_back(rank == share_.rank ? mine(i) : std::exchange(received, received + count));
      for (int64_t additions = stack_.push(nodes[rank][i]); additions > 0; --additions) add_last_two(pool, count);
    }
  while (all && values_.size() > 1) add_last_two(pool, count);
}

// Adds values [first, first + count) of each of `nodes`; nodes[0] receives the sum.
void ShardSum::add_nodes(
    std::span<const std::span<float>> nodes, size_t first, size_t count, ThreadPool& pool, Communicator::Wait wait) {
  stack_.clear(), values_.clear();
  exchange_and_add(
      nodes_of_, [&](size_t i) { return nodes[i].data() + first; }, count, true, pool, wait);
  copy(nodes[0].data() + first, values_[0], count);
}

void ShardSum::add_last_two(ThreadPool& pool, size_t count) {
  const float* last = values_.back();
  values_.pop_back();
  add_values(device_, pool, values_.back(), last, count);
}

void ShardSum::copy(float* into, const float* from, size_t count) {
  if (into == from) return;
  if (device_) device_->copy(into, from, count);
  else std::copy_n(from, count, into);
}

// `count` values of a round's shards, this rank's at `mine`, and those of the waiting nodes at `first`.
void ShardSum::exchange_and_add_round(int64_t round, float* mine, std::span<const std::span<float>> sums, size_t first,
    size_t count, ThreadPool& pool, Communicator::Wait wait) {
  stack_.clear(), values_.clear();
  for (int64_t shard = 0; shard < round * share_.ranks; ++shard) stack_.push({shard, 1});
  for (size_t i = 0; i < stack_.nodes().size(); ++i) values_.push_back(sums[i].data() + first);
  for (int rank = 0; rank < share_.ranks; ++rank) round_nodes_[rank][0] = {round * share_.ranks + rank, 1};
  const bool is_last = round + 1 == share_.count();
  exchange_and_add(
      round_nodes_, [&](size_t) { return mine; }, count, is_last, pool, wait);
  for (size_t i = 0; i < values_.size(); ++i) copy(sums[i].data() + first, values_[i], count);
}

void ShardSum::reduce_scatter(std::span<const std::span<float>> nodes, const SliceBounds& bounds, Slice part,
    ThreadPool& pool, Communicator::Wait wait) {
  in_pieces(bounds, part, share_.ranks, piece_, [&](const auto& piece) {
    list_outgoing(
        nodes.size(), [&](int rank, size_t i) { return nodes[i].subspan(piece(rank).first, piece(rank).count); });
    const Slice mine = piece(share_.rank);
    add_nodes(nodes, mine.first, mine.count, pool, wait);
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
    list_outgoing(1, [&](int rank, size_t) { return values(rank); });
    const std::span<float> mine = values(share_.rank);
    const size_t first = mine.empty() ? 0 : piece(share_.rank).first - own_first;
    exchange_and_add_round(round, mine.data(), sums, first, mine.size(), pool, wait);
  });
}

void ShardSum::add_round_everywhere(
    int64_t round, std::span<float> shard, std::span<const std::span<float>> sums, ThreadPool& pool) {
  if (shard.size() * static_cast<size_t>(share_.ranks - 1) > workspace_.size())
    fail_internal("add_round_everywhere is for few values");
  list_outgoing(1, [&](int, size_t) { return shard; });
  exchange_and_add_round(round, shard.data(), sums, 0, shard.size(), pool, Communicator::Wait::kSoon);
}

void ShardSum::sum_everywhere(std::span<const std::span<float>> nodes, ThreadPool& pool) {
  const size_t values = nodes[0].size();
  if (values * nodes_of_others(share_) > workspace_.size()) fail_internal("sum_everywhere is for few values");
  list_outgoing(nodes.size(), [&](int, size_t i) { return nodes[i]; });
  add_nodes(nodes, 0, values, pool, Communicator::Wait::kSoon);
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

std::vector<ShardNode> nodes_of_shards(int64_t first, int64_t count) {
  ShardStack stack;
  for (int64_t i = 0; i < count; ++i) stack.push({first + i, 1});
  return stack.nodes();
}

std::vector<ShardNode> ShardShare::nodes_of(int rank) const { return nodes_of_shards(count() * rank, count()); }

int64_t ShardShare::most_waiting() const {
  return max_of<int64_t>(count(), [&](int64_t i) { return std::ssize(nodes_of_shards(first(), i)); });
}

int64_t ShardShare::most_nodes_after_a_round() const {
  const auto nodes = [&](int64_t rounds) { return std::ssize(nodes_of_shards(0, rounds * ranks)); };
  return std::max<int64_t>(max_of<int64_t>(count(), nodes), 1);  // 1: the sum of all shards
}

void check_share(const ShardShare& share) {
  if (share.shards % share.ranks == 0) return;
  fail_user(
      share.ranks, " ranks cannot share data_shards = ", share.shards, " evenly; the number of ranks must divide it");
}
}  // namespace linnet
