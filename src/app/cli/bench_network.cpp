#include <algorithm>
#include <chrono>
#include <thread>
#include "app/cli/bench_parts.h"
#include "app/cli/print-inl.h"
#include "app/cli/rank_start.h"
#include "base/thread_pool.h"
#include "base/timeline.h"
#include "distributed/comm/world.h"
#include "distributed/simulate/network.h"

namespace linnet {
namespace {
constexpr size_t kLeast = size_t{1} << 10, kMost = size_t{1} << 26;  // bytes
constexpr double kSeconds = 0.3;                                     // for each size
constexpr int kRuns = 5;                                             // fewest for each size
constexpr size_t kBesideComputing = size_t{1} << 18;                 // like gradients in training
// At this gain or above messages move while the rank computes; 2 is perfect, 1 is taking turns.
constexpr double kOverlaps = 1.5;

// Every rank sends to the next one and receives from the previous one. Median of the slowest rank's times.
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

// Threads that compute until the end of their scope.
class BusyThreads {
 public:
  explicit BusyThreads(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { compute(stop); });
  }
  int64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  void compute(const std::stop_token& stop) {
    constexpr int kPart = 20'000;  // some microseconds
    volatile float result = 1;
    while (!stop.stop_requested()) {
      float x = result;
      for (int i = 0; i < kPart; ++i) x = x * 0.5f + 1;
      result = x;
      done_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  std::atomic<int64_t> done_{0};
  std::vector<std::jthread> threads_;  // last, so that they end first
};

// The gain from `threads` of each rank computing during exchanges, over doing one after the other: the sum of the
// shares of their own speed that both keep. Of the rank that gains least.
double gain_of_overlap(
    Communicator& world, int threads, std::span<const std::byte> sent, std::span<std::byte> received) {
  const double exchange_alone = measured_seconds(world, sent, received);
  const BusyThreads busy(threads);
  const auto parts_a_second = [&](const auto& meanwhile) {
    barrier(world);
    const int64_t before = busy.done();
    const double begin = now();
    meanwhile();
    return static_cast<double>(busy.done() - before) / (now() - begin);
  };
  const double computing_alone =
      parts_a_second([] { std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds)); });
  double exchange_beside = 0;
  const double computing_beside = parts_a_second([&] { exchange_beside = measured_seconds(world, sent, received); });
  const double own = exchange_alone / exchange_beside + computing_beside / computing_alone;
  std::vector<double> all(world.size());
  all_gather(world, std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  return *std::ranges::min_element(all);
}

int measure(Communicator& world, const BenchArguments& arguments) {
  if (world.size() == 1) fail_user("a network connects several ranks: linnet bench network --ranks 2");
  std::vector<std::byte> sent(kMost), received(kMost);
  std::vector<TimedExchange> exchanges;
  const bool prints = world.rank() == 0 && !arguments.json;
  if (prints) print("{:>12} {:>12} {:>12}\n", "bytes", "us", "GB/s");
  auto rows = Json::array();
  for (size_t bytes = kLeast; bytes <= kMost; bytes *= 4) {
    const double seconds = measured_seconds(world, std::span(sent).first(bytes), std::span(received).first(bytes));
    exchanges.push_back({static_cast<double>(bytes), seconds});
    rows.push_back({{"bytes", bytes}, {"seconds", seconds}});
    if (prints) print("{:12} {:12.1f} {:12.2f}\n", bytes, 1e6 * seconds, static_cast<double>(bytes) / seconds * 1e-9);
  }
  Network network = fit_network(exchanges);
  // Within a machine processors copy the messages. Between machines the network may do so by itself.
  const auto starter = find_starter();
  const bool one_machine = starter && starter->ranks_here == world.size();
  const int computing = arguments.threads > 0 ? arguments.threads : available_threads();
  const double gain = one_machine ? 1
                                  : gain_of_overlap(world, computing, std::span(sent).first(kBesideComputing),
                                        std::span(received).first(kBesideComputing));
  network.overlaps = gain >= kOverlaps;
  if (world.rank() > 0) return 0;
  if (arguments.json) {
    print_json({{"workload", "network"}, {"ranks", world.size()}, {"network", network_text(network)},
        {"bytes_per_second", network.bytes_per_second}, {"latency_seconds", network.latency}, {"gain_of_overlap", gain},
        {"rows", rows}});
  } else {
    if (!one_machine)
      print("beside {} thread{} that compute{}: {:.2f} of 2, where 1 is taking turns\n", computing,
          computing == 1 ? "" : "s", computing == 1 ? "s" : "", gain);
    print("--network {}\n", network_text(network));
  }
  return 0;
}
}  // namespace

int bench_network(const BenchArguments& arguments) {
  if (arguments.ranks > 0) return start_ranks(static_cast<int>(arguments.ranks), 0);
  return run_as_rank([&](Communicator& world) { return measure(world, arguments); });
}
}  // namespace linnet
