// Ranks that are threads of a test: what is built on Communicator is tested without a starter.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>
#include "base/error.h"
#include "distributed/comm/communicator.h"

namespace linnet::testing {
// The messages on their way between `ranks` threads.
class Mailboxes {
 public:
  void put(int from, int to, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    boxes_[{from, to}].emplace(bytes.begin(), bytes.end());
    arrived_.notify_all();
  }
  void take(int from, int to, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, to}];
    arrived_.wait(lock, [&] { return !box.empty(); });
    if (box.front().size() != bytes.size()) fail_internal("a message of another size than the receiver expects");
    std::ranges::copy(box.front(), bytes.begin());
    box.pop();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::queue<std::vector<std::byte>>> boxes_;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(Mailboxes& mail, int rank, int size) : mail_(mail), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, Wait) override {
    for (const auto& [to, bytes] : outgoing)
      if (!bytes.empty()) mail_.put(rank_, to, bytes);
    for (const auto& [from, bytes] : incoming)
      if (!bytes.empty()) mail_.take(from, rank_, bytes);
  }

 private:
  Mailboxes& mail_;
  const int rank_, size_;
};

// Runs `body` as each of the ranks, in a thread each. It must not throw on one rank while others wait for that one.
inline void run_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  Mailboxes mail;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      ThreadCommunicator world(mail, rank, ranks);
      body(world);
    });
  for (std::thread& thread : threads) thread.join();
}
}  // namespace linnet::testing
