#include "distributed/comm/communicator.h"
#include <algorithm>
#include <cstring>
#include "base/error.h"
#include "base/fail.h"
#include "base/functions.h"
#include "base/numbers.h"
#include "distributed/comm/shard_sum.h"
#include "distributed/comm/tensor_group.h"

namespace linnet {
namespace {
class SingleProcess : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, Wait) override {
    if (!outgoing.empty() || !incoming.empty()) fail_internal("a message to or from another rank of one");
  }
};

size_t block_count(size_t count) { return ceil_div(count, kSliceUnit); }

// part(rank): the bytes of `all` that the rank owns.
void all_gather_parts(Communicator& world, std::span<std::byte> all, FunctionRef<Slice(int rank)> part) {
  const auto block = [&](int rank) { return all.subspan(part(rank).first, part(rank).count); };
  auto& [outgoing, incoming, parts] = world.empty_lists();
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank == world.rank()) continue;
    outgoing.push_back({rank, block(world.rank())});
    incoming.push_back({rank, block(rank)});
  }
  world.exchange(outgoing, incoming);
}

Slice bytes_of_values(Slice values, size_t size) { return {values.first * size, values.count * size}; }

constexpr size_t kThreadPiece = size_t{1} << 14;  // floats that a thread adds at once

// to = the sum of the parts in order; `to` is one of them.
void add_in_order(ThreadPool& pool, std::span<const float* const> parts, float* to, size_t count) {
  in_ranges(pool, count, kThreadPiece, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      float sum = parts[0][i];
      for (size_t part = 1; part < parts.size(); ++part) sum += parts[part][i];
      to[i] = sum;
    }
  });
}
}  // namespace

Communicator& single_process() {
  static SingleProcess instance;
  return instance;
}

void send(Communicator& world, int to, std::span<const std::byte> bytes) {
  const Communicator::Outgoing message{to, bytes};
  world.exchange({&message, 1}, {});
}

void receive(Communicator& world, int from, std::span<std::byte> bytes) {
  const Communicator::Incoming message{from, bytes};
  world.exchange({}, {&message, 1});
}

void barrier(Communicator& world) { all_gather(world, std::byte{}); }

void broadcast(Communicator& world, int root, std::span<std::byte> bytes) {
  if (world.rank() != root) return receive(world, root, bytes);
  std::vector<Communicator::Outgoing> messages;
  for (int rank = 0; rank < world.size(); ++rank)
    if (rank != root) messages.push_back({rank, bytes});
  world.exchange(messages, {});
}

void broadcast(Communicator& world, int root, std::span<float> values) {
  broadcast(world, root, std::as_writable_bytes(values));
}

void all_gather(Communicator& world, std::span<const std::byte> mine, std::span<std::byte> all) {
  const size_t size = mine.size();
  if (all.size() != size * static_cast<size_t>(world.size())) fail_internal("all_gather: sizes do not agree");
  const auto block = [&](int rank) { return Slice{static_cast<size_t>(rank) * size, size}; };
  if (size > 0) std::memcpy(all.data() + block(world.rank()).first, mine.data(), size);
  all_gather_parts(world, all, block);
}

Slice slice(size_t count, int rank, int size) {
  const size_t blocks = block_count(count), ranks = static_cast<size_t>(size);
  const auto first = [&](size_t r) {
    return std::min((blocks / ranks * r + blocks % ranks * r / ranks) * kSliceUnit, count);
  };
  const auto own = static_cast<size_t>(rank);
  return {first(own), first(own + 1) - first(own)};
}

Slice overlap(Slice a, Slice b) {
  const size_t first = std::max(a.first, b.first), end = std::min(a.first + a.count, b.first + b.count);
  return {first, end > first ? end - first : 0};
}

SliceBounds slice_bounds(size_t count, int size) {
  SliceBounds bounds{0};
  for (int rank = 0; rank < size; ++rank) bounds.push_back(bounds.back() + slice(count, rank, size).count);
  return bounds;
}

Slice block_slice(const SliceBounds& bounds, int rank) {
  const Slice own = slice(bounds, rank);
  const size_t first = block_count(own.first);
  return {first, block_count(own.first + own.count) - first};
}

void all_gather_slices(Communicator& world, std::span<float> all, const SliceBounds& bounds) {
  all_gather_parts(world, std::as_writable_bytes(all),
      [&](int rank) { return bytes_of_values(slice(bounds, rank), sizeof(float)); });
}

void all_gather_slice_blocks(Communicator& world, std::span<double> blocks, const SliceBounds& bounds) {
  all_gather_parts(world, std::as_writable_bytes(blocks),
      [&](int rank) { return bytes_of_values(block_slice(bounds, rank), sizeof(double)); });
}

std::string broadcast_text(Communicator& world, int root, std::string text) {
  text.resize(broadcast_value(world, root, text.size()));
  if (!text.empty()) broadcast(world, root, std::as_writable_bytes(std::span(text)));
  return text;
}

std::vector<std::string> gather_texts(Communicator& world, std::string_view mine) {
  return mapped(world.size(),
      [&](int root) { return broadcast_text(world, root, root == world.rank() ? std::string(mine) : std::string()); });
}

std::vector<int> some_ranks(int first, int count, int step) {
  return mapped(count, [&](int i) { return first + i * step; });
}

RankGroup::RankGroup(Communicator& world, std::vector<int> ranks) : world_(world), ranks_(std::move(ranks)) {
  const auto own = std::ranges::find(ranks_, world.rank());
  if (own == ranks_.end()) fail_internal("a process is not in its own group of ranks");
  rank_ = static_cast<int>(own - ranks_.begin());
}

void RankGroup::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, Wait wait) {
  outgoing_.clear(), incoming_.clear();
  for (const auto& [to, bytes] : outgoing) outgoing_.push_back({ranks_[to], bytes});
  for (const auto& [from, bytes] : incoming) incoming_.push_back({ranks_[from], bytes});
  world_.exchange(outgoing_, incoming_, wait);
}

RankGroups::RankGroups(Communicator& world, int tensor_ranks, int stages)
    : tensor(world, some_ranks(world.rank() / tensor_ranks * tensor_ranks, tensor_ranks, 1)),
      pipeline(world,
          some_ranks(world.rank() / (tensor_ranks * stages) * (tensor_ranks * stages) + world.rank() % tensor_ranks,
              stages, tensor_ranks)),
      data(world, some_ranks(world.rank() % (tensor_ranks * stages), world.size() / (tensor_ranks * stages),
                      tensor_ranks * stages)) {}

Communicator& checked_group(Communicator* group, int ranks) {
  if (!group || group->size() != ranks)
    fail_internal("a plan of ", ranks, " ranks is run by ", group ? group->size() : 1);
  return *group;
}

size_t sum_scratch_size(size_t values, int ranks) {
  const auto count = static_cast<size_t>(ranks);
  return sends_whole(values, count) ? values * count : std::min(values, kSummedPiece) + count;
}

void sum_over_ranks(Communicator& group, std::span<float> values, std::span<float> scratch, ThreadPool& pool) {
  const auto ranks = static_cast<size_t>(group.size()), own = static_cast<size_t>(group.rank());
  const bool whole = sends_whole(values.size(), ranks);
  const size_t piece_size = whole ? values.size() : kSummedPiece;
  for (size_t done = 0; done < values.size(); done += piece_size) {
    const std::span<float> piece = values.subspan(done, std::min(piece_size, values.size() - done));
    const auto share = [&](size_t rank) -> Slice {
      if (whole) return {0, piece.size()};
      const size_t first = piece.size() * rank / ranks;
      return {first, piece.size() * (rank + 1) / ranks - first};
    };
    const auto part = [&](size_t rank) { return piece.subspan(share(rank).first, share(rank).count); };
    auto& [outgoing, incoming, parts] = group.empty_lists();
    const std::span<float> mine = part(own);
    float* location = scratch.data();
    for (size_t rank = 0; rank < ranks; ++rank) {
      parts.push_back(rank == own ? mine.data() : location);
      if (rank == own) continue;
      outgoing.push_back({static_cast<int>(rank), std::as_bytes(part(rank))});
      incoming.push_back({static_cast<int>(rank), std::as_writable_bytes(std::span(location, mine.size()))});
      location += mine.size();
    }
    group.exchange(outgoing, incoming, Communicator::Wait::kSoon);
    add_in_order(pool, parts, mine.data(), mine.size());
    if (!whole)
      all_gather_parts(group, std::as_writable_bytes(piece),
          [&](int rank) { return bytes_of_values(share(static_cast<size_t>(rank)), sizeof(float)); });
  }
}

float sum_over_ranks(Communicator& group, float value, std::vector<float>& scratch, ThreadPool& pool) {
  scratch.resize(std::max(scratch.size(), sum_scratch_size(1, group.size())));
  sum_over_ranks(group, {&value, 1}, scratch, pool);
  return value;
}
}  // namespace linnet
