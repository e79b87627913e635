#include "distributed/comm/tensor_group.h"
#include <algorithm>
#include "base/fail.h"
#include "distributed/comm/shard_sum.h"

namespace linnet {
namespace {
constexpr size_t kSummedPiece = size_t{1} << 18;  // floats that are summed at once
constexpr size_t kFew = 4096;                     // floats that every rank sends whole: one exchange in place of two
constexpr size_t kThreadPiece = size_t{1} << 14;  // floats that a thread adds at once

// With few values, each rank computes the whole sum.
bool sends_whole(size_t values, size_t ranks) { return values * ranks <= kFew; }

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

std::vector<int> some_ranks(int first, int count, int step) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks;
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
    const auto part = [&](size_t rank) {
      if (whole) return piece;
      const size_t first = piece.size() * rank / ranks;
      return piece.subspan(first, piece.size() * (rank + 1) / ranks - first);
    };
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
    if (whole) continue;
    outgoing.clear(), incoming.clear();
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (rank == own) continue;
      outgoing.push_back({static_cast<int>(rank), std::as_bytes(mine)});
      incoming.push_back({static_cast<int>(rank), std::as_writable_bytes(part(rank))});
    }
    group.exchange(outgoing, incoming, Communicator::Wait::kSoon);
  }
}
}  // namespace linnet
