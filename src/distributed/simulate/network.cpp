#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include "base/fail.h"
#include "base/functions.h"
#include "base/numbers.h"
#include "base/text.h"
#include "distributed/comm/tensor_group.h"
#include "distributed/simulate/training_step.h"

namespace linnet {
namespace {
constexpr QuantityUnit kBandwidths[] = {{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"KB/s", 1e3}, {"B/s", 1},
    {"bit/s", 1.0 / 8}, {"Kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8}};
constexpr size_t kByteUnits = 5;  // the first of these
constexpr QuantityUnit kTimes[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};

// In the largest unit in which the number is at least 1.
std::string in_units(double value, std::span<const QuantityUnit> descending) {
  const QuantityUnit* unit = descending.data();
  while (unit != &descending.back() && value < unit->factor) ++unit;
  return printed("%.4g", value / unit->factor) + std::string(unit->name);
}

double bytes_of(size_t values) { return 4.0 * static_cast<double>(values); }

// By rank: its nodes, and the values it owns of a part.
struct Shares {
  Shares(const ShardShare& share, size_t values, Slice part) {
    nodes = mapped(share.ranks, [&](int rank) { return share.nodes_of(rank).size(); });
    own = mapped(share.ranks, [&](int rank) { return overlap(slice(values, rank, share.ranks), part).count; });
    all_nodes = std::reduce(nodes.begin(), nodes.end()), longest = std::ranges::max(own);
  }
  std::vector<size_t> nodes, own;
  size_t all_nodes = 0, longest = 0;
};

// The most that a rank sends or receives if each sends its own(rank) of `all` to all others.
size_t busiest_rank(int ranks, size_t all, FunctionRef<size_t(int rank)> own) {
  const auto others = static_cast<size_t>(ranks - 1);
  return max_of<size_t>(ranks, [&](int rank) { return std::max(own(rank) * others, all - own(rank)); });
}
}  // namespace

double parse_quantity(std::string_view text, std::span<const QuantityUnit> units) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return -1;
  const std::string_view unit = trimmed(text.substr(end - text.data()), " ");
  const auto lower = [](char c) { return lower_ascii(c); };
  for (const QuantityUnit& known : units)
    if (std::ranges::equal(unit, known.name, {}, lower, lower)) return value * known.factor;
  return -1;
}

Network parse_network(const std::string& text) {
  const std::string wanted = "; write bandwidth and latency, for example --network 25GB/s,5us";
  std::vector<std::string_view> words = split(text, ',');
  for (std::string_view& word : words) word = trimmed(word, " ");
  const auto fail = [](std::string_view word, const std::string& problem) {
    fail_user("--network: \"", word, "\" is not ", problem);
  };
  if (words.size() < 2 || words.size() > 3) fail_user("--network \"", text, "\" is not understood", wanted);
  Network network{
      .bytes_per_second = parse_quantity(words[0], kBandwidths), .latency = parse_quantity(words[1], kTimes)};
  if (network.bytes_per_second <= 0) fail(words[0], "a bandwidth such as 25GB/s or 100Gbit/s" + wanted);
  if (network.latency < 0) fail(words[1], "a latency such as 5us or 0.1ms" + wanted);
  network.overlaps = words.size() == 2;
  if (!network.overlaps && words[2] != "no-overlap")
    fail(words[2], "understood; the third word can only be no-overlap");
  return network;
}

std::string network_text(const Network& network) {
  return in_units(network.bytes_per_second, std::span(kBandwidths).first(kByteUnits)) + "," +
         in_units(network.latency, kTimes) + (network.overlaps ? "" : ",no-overlap");
}

// The bandwidth is the median of seconds per byte from the smallest exchange to each other one. A few sizes may be far
// from the line: a token bucket lets small messages pass at once, and some MPIs send large ones in another way. As
// small messages may differ too, the latency is bounded: at most the fastest exchange's time, at least half of it.
Network fit_network(std::span<const TimedExchange> exchanges) {
  const auto smallest = std::ranges::min_element(exchanges, {}, &TimedExchange::bytes);
  std::vector<double> slopes;
  for (const TimedExchange& exchange : exchanges)
    if (exchange.bytes > smallest->bytes)
      slopes.push_back((exchange.seconds - smallest->seconds) / (exchange.bytes - smallest->bytes));
  if (slopes.empty()) fail_internal("a network is fitted to exchanges of one size");
  const double slope = std::max(median(slopes), 1e-15);
  const double fastest = std::ranges::min_element(exchanges, {}, &TimedExchange::seconds)->seconds;
  return {.bytes_per_second = 1 / slope,
      .latency = std::clamp(smallest->seconds - slope * smallest->bytes, fastest / 2, fastest)};
}

double seconds_of(const Traffic& traffic, const Network& network) {
  return static_cast<double>(traffic.exchanges) * network.latency + traffic.port_bytes / network.bytes_per_second;
}

Traffic reduce_scatter_traffic(size_t values, Slice part, const ShardShare& share) {
  if (share.ranks == 1) return {};
  const Shares of(share, values, part);
  size_t sent = 0, busiest = 0;
  for (size_t rank = 0; rank < of.nodes.size(); ++rank) {
    const size_t sends = of.nodes[rank] * (part.count - of.own[rank]),
                 receives = (of.all_nodes - of.nodes[rank]) * of.own[rank];
    sent += sends, busiest = std::max({busiest, sends, receives});
  }
  return {.exchanges = static_cast<int64_t>(ceil_div(of.longest, kShardPiece)),
      .port_bytes = bytes_of(busiest),
      .sent_bytes = bytes_of(sent) / share.ranks};
}

double added_bytes(size_t values, Slice part, const ShardShare& share) {
  if (share.ranks == 1) return 0;
  const Shares of(share, values, part);
  return 3 * bytes_of(of.longest * (of.all_nodes - 1));  // each addition reads two values and writes one
}

Traffic gather_slices_traffic(size_t values, int ranks) {
  if (ranks == 1) return {};
  const size_t busiest = busiest_rank(ranks, values, [&](int rank) { return slice(values, rank, ranks).count; });
  return {.exchanges = 1,
      .port_bytes = bytes_of(busiest),
      .sent_bytes = bytes_of(values * static_cast<size_t>(ranks - 1)) / ranks};
}

Traffic sum_everywhere_traffic(size_t values, const ShardShare& share) {
  if (share.ranks == 1) return {};
  const Shares of(share, values, {0, values});
  const size_t busiest = busiest_rank(share.ranks, of.all_nodes, [&](int rank) { return of.nodes[rank]; });
  return {.exchanges = 1,
      .port_bytes = bytes_of(values * busiest),
      .sent_bytes = bytes_of(values * of.all_nodes * static_cast<size_t>(share.ranks - 1)) / share.ranks};
}

Traffic all_reduce_traffic(size_t values, int ranks) {
  if (ranks == 1 || values == 0) return {};
  const auto count = static_cast<size_t>(ranks), others = count - 1;
  if (sends_whole(values, count)) return send_traffic(bytes_of(values * others));
  Traffic traffic;
  for (size_t done = 0; done < values; done += kSummedPiece) {
    const size_t piece = std::min(kSummedPiece, values - done);
    const size_t busiest =
        busiest_rank(ranks, piece, [&](size_t rank) { return piece * (rank + 1) / count - piece * rank / count; });
    traffic += {.exchanges = 2,
        .port_bytes = 2 * bytes_of(busiest),
        .sent_bytes = 2 * bytes_of(piece * others) / static_cast<double>(count)};
  }
  return traffic;
}

Traffic all_gather_traffic(size_t values, int ranks) {
  return ranks == 1 ? Traffic{} : send_traffic(bytes_of(values) * (ranks - 1));
}

Traffic send_traffic(double bytes) { return {.exchanges = 1, .port_bytes = bytes, .sent_bytes = bytes}; }
}  // namespace linnet
