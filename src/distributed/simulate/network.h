// The time to move bytes between ranks: a latency for each exchange, and a bandwidth of each rank in each direction.
// Links are not shared: a rank's own port is the bound (the model of Hockney 1994 with one port).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include "distributed/comm/communicator.h"
#include "distributed/comm/shard_sum.h"

namespace linnet {
struct Network {
  double bytes_per_second = 0;  // of one rank, in each direction at the same time
  double latency = 0;           // seconds of an exchange of no bytes
  // Whether a rank computes at full speed while its messages move. False on one machine, where these processors also
  // copy.
  bool overlaps = true;
};

// "25GB/s,5us" or "100Gbit/s,2us": bandwidth (B, KB, MB, GB, TB or bit, Kbit, Mbit, Gbit, Tbit a second) and latency
// (s, ms, us or ns). A third word "no-overlap" clears Network::overlaps. User errors name the option --network.
Network parse_network(const std::string& text);
std::string network_text(const Network& network);  // a text that parse_network() reads as nearly the same network

struct TimedExchange {  // each rank sends and receives `bytes`
  double bytes, seconds;
};
// Fits latency and bandwidth to most of the exchanges, which must have at least two sizes.
Network fit_network(std::span<const TimedExchange> exchanges);

// What the busiest rank sends and receives in an operation of comm/, as consecutive exchanges.
struct Traffic {
  int64_t exchanges = 0;
  double port_bytes = 0;  // the larger of what the busiest rank sends and what it receives, over all exchanges
  double sent_bytes = 0;  // mean of the ranks

  Traffic& operator+=(const Traffic& other) {
    exchanges += other.exchanges, port_bytes += other.port_bytes, sent_bytes += other.sent_bytes;
    return *this;
  }
};

double seconds_of(const Traffic& traffic, const Network& network);

// As many exchanges and bytes as comm/ makes of the same call. Every value goes directly to the rank that adds it, so
// an all-reduce of balanced slices moves as many bytes as a ring, 2 (n - 1) / n of the values, in fewer exchanges.

// ShardSum::reduce_scatter of `part` of `values` floats: each rank receives the others' for its own slice.
Traffic reduce_scatter_traffic(size_t values, Slice part, const ShardShare& share);
Traffic gather_slices_traffic(size_t values, int ranks);
Traffic sum_everywhere_traffic(size_t values, const ShardShare& share);
Traffic all_reduce_traffic(size_t values, int ranks);  // sum_over_ranks() of a tensor group: the op all_reduce
// Each rank sends `values` floats to all others: the op all_gather.
Traffic all_gather_traffic(size_t values, int ranks);
Traffic send_traffic(double bytes);  // one message of `bytes` between two ranks

// Bytes that the rank which adds most reads and writes, besides messages, in a reduce_scatter_traffic().
double added_bytes(size_t values, Slice part, const ShardShare& share);
}  // namespace linnet
