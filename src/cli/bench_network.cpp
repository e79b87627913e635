#include "cli/bench_network.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "cli/rank_start.h"
#include "comm/world.h"
#include "simulate/network.h"

namespace linnet {
namespace {

constexpr size_t kLeast = size_t{1} << 10, kMost = size_t{1} << 26;  // bytes
constexpr double kSeconds = 0.3;                                     // of each size
constexpr int kRuns = 5;                                             // of each size, at least

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Every rank sends to the next one and receives from the one before it. The median of the slowest rank of each
// exchange.
double measured_seconds(Communicator& world, std::span<const std::byte> sent, std::span<std::byte> received) {
  const Communicator::Outgoing outgoing{(world.rank() + 1) % world.size(), sent};
  const Communicator::Incoming incoming{(world.rank() + world.size() - 1) % world.size(), received};
  std::vector<double> times, of_all(static_cast<size_t>(world.size()));
  double spent = 0;
  for (int run = 0; run < kRuns || spent < kSeconds; ++run) {
    barrier(world);
    const double begin = now();
    world.exchange({&outgoing, 1}, {&incoming, 1});
    const double own = now() - begin;
    all_gather(world, std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(of_all)));
    times.push_back(*std::ranges::max_element(of_all));
    spent += times.back();
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

int measure(Communicator& world, bool json) {
  if (world.size() == 1) fail_user("a network connects several ranks: linnet bench network --ranks 2");
  std::vector<std::byte> sent(kMost), received(kMost);
  std::vector<TimedExchange> exchanges;
  const bool prints = world.rank() == 0 && !json;
  if (prints) std::printf("%12s %12s %12s\n", "bytes", "us", "GB/s");
  auto rows = nlohmann::ordered_json::array();
  for (size_t bytes = kLeast; bytes <= kMost; bytes *= 4) {
    const double seconds = measured_seconds(world, std::span(sent).first(bytes), std::span(received).first(bytes));
    exchanges.push_back({static_cast<double>(bytes), seconds});
    rows.push_back({{"bytes", bytes}, {"seconds", seconds}});
    if (prints) std::printf("%12zu %12.1f %12.2f\n", bytes, 1e6 * seconds, static_cast<double>(bytes) / seconds * 1e-9);
  }
  Network network = fit_network(exchanges);
  // Within a machine the processors copy the messages.
  const auto starter = find_starter();
  network.overlaps = !starter || starter->ranks_here < world.size();
  if (world.rank() > 0) return 0;
  if (json) {
    const nlohmann::ordered_json answer{{"workload", "network"},
                                        {"ranks", world.size()},
                                        {"network", network_text(network)},
                                        {"bytes_per_second", network.bytes_per_second},
                                        {"latency_seconds", network.latency},
                                        {"rows", rows}};
    std::printf("%s\n", answer.dump().c_str());
  } else {
    std::printf("--network %s\n", network_text(network).c_str());
  }
  return 0;
}

}  // namespace

int bench_network(int ranks, bool json) {
  if (ranks > 0) return start_ranks(ranks, 0);
  return run_as_rank([&](Communicator& world) { return measure(world, json); });
}

}  // namespace linnet
