#include "distributed/simulate/traffic.h"

#include <algorithm>
#include <vector>

#include "base/rounding.h"

namespace linnet {
namespace {

// As in comm/: traffic_test.cpp holds these against its calls.
constexpr size_t kShardPiece = size_t{1} << 16;   // floats of a node in one exchange: distributed/comm/shard_sum.cpp
constexpr size_t kTensorPiece = size_t{1} << 18;  // floats summed at once, and
constexpr size_t kTensorFew = 4096;               // floats that every rank sends whole: distributed/comm/tensor_group.cpp

double bytes_of(size_t values) { return 4.0 * static_cast<double>(values); }

std::vector<size_t> nodes_by_rank(const ShardShare& share) {
  std::vector<size_t> nodes;
  for (int rank = 0; rank < share.ranks; ++rank) nodes.push_back(share.nodes_of(rank).size());
  return nodes;
}

}  // namespace

Traffic reduce_scatter_traffic(size_t values, Slice part, const ShardShare& share) {
  if (share.ranks == 1) return {};
  const std::vector<size_t> nodes = nodes_by_rank(share);
  size_t longest = 0, all_nodes = 0, sent = 0, busiest = 0;
  for (const size_t count : nodes) all_nodes += count;
  std::vector<size_t> own(nodes.size());
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    own[rank] = overlap(slice(values, static_cast<int>(rank), share.ranks), part).count;
    longest = std::max(longest, own[rank]);
  }
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    const size_t sends = nodes[rank] * (part.count - own[rank]), receives = (all_nodes - nodes[rank]) * own[rank];
    sent += sends, busiest = std::max({busiest, sends, receives});
  }
  return {.exchanges = static_cast<int64_t>(ceil_div(longest, kShardPiece)),
          .port_bytes = bytes_of(busiest),
          .sent_bytes = bytes_of(sent) / share.ranks};
}

double added_bytes(size_t values, Slice part, const ShardShare& share) {
  if (share.ranks == 1) return 0;
  size_t longest = 0, all_nodes = 0;
  for (const size_t count : nodes_by_rank(share)) all_nodes += count;
  for (int rank = 0; rank < share.ranks; ++rank)
    longest = std::max(longest, overlap(slice(values, rank, share.ranks), part).count);
  return 3 * bytes_of(longest * (all_nodes - 1));  // each addition reads two values and writes one
}

Traffic gather_slices_traffic(size_t values, int ranks) {
  if (ranks == 1) return {};
  const auto others = static_cast<size_t>(ranks - 1);
  size_t busiest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const size_t own = slice(values, rank, ranks).count;
    busiest = std::max({busiest, own * others, values - own});
  }
  return {.exchanges = 1, .port_bytes = bytes_of(busiest), .sent_bytes = bytes_of(values * others) / ranks};
}

Traffic sum_everywhere_traffic(size_t values, const ShardShare& share) {
  if (share.ranks == 1) return {};
  size_t all_nodes = 0, busiest = 0;
  const std::vector<size_t> nodes = nodes_by_rank(share);
  for (const size_t count : nodes) all_nodes += count;
  const auto others = static_cast<size_t>(share.ranks - 1);
  for (const size_t count : nodes) busiest = std::max({busiest, count * others, all_nodes - count});
  return {.exchanges = 1,
          .port_bytes = bytes_of(values * busiest),
          .sent_bytes = bytes_of(values * all_nodes * others) / share.ranks};
}

Traffic all_reduce_traffic(size_t values, int ranks) {
  if (ranks == 1 || values == 0) return {};
  const auto count = static_cast<size_t>(ranks), others = count - 1;
  if (values * count <= kTensorFew)
    return {.exchanges = 1, .port_bytes = bytes_of(values * others), .sent_bytes = bytes_of(values * others)};
  Traffic traffic;
  for (size_t done = 0; done < values; done += kTensorPiece) {
    const size_t piece = std::min(kTensorPiece, values - done);
    size_t busiest = 0;
    for (size_t rank = 0; rank < count; ++rank) {
      const size_t own = piece * (rank + 1) / count - piece * rank / count;
      busiest = std::max({busiest, own * others, piece - own});
    }
    traffic += {.exchanges = 2,
                .port_bytes = 2 * bytes_of(busiest),
                .sent_bytes = 2 * bytes_of(piece * others) / static_cast<double>(count)};
  }
  return traffic;
}

Traffic all_gather_traffic(size_t values, int ranks) {
  if (ranks == 1) return {};
  const double bytes = bytes_of(values) * (ranks - 1);
  return {.exchanges = 1, .port_bytes = bytes, .sent_bytes = bytes};
}

Traffic send_traffic(double bytes) { return {.exchanges = 1, .port_bytes = bytes, .sent_bytes = bytes}; }

}  // namespace linnet
