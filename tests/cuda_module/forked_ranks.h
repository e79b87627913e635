// Ranks that are processes of a test: each has a fake CUDA runtime of its own, whose work it does when it waits.
#pragma once
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>
#include "base/error.h"
#include "distributed/comm/communicator.h"

namespace linnet::testing {
class SocketCommunicator : public Communicator {
 public:
  // sockets[r]: to and from rank r.
  SocketCommunicator(int rank, std::vector<int> sockets) : rank_(rank), sockets_(std::move(sockets)) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(sockets_.size()); }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, Wait) override {
    std::vector<std::thread> senders;
    for (int rank = 0; rank < size(); ++rank)
      senders.emplace_back([&, rank] {
        for (const auto& [to, bytes] : outgoing)
          if (to == rank) transfer(to, const_cast<std::byte*>(bytes.data()), bytes.size(), true);
      });
    for (const auto& [from, bytes] : incoming) transfer(from, bytes.data(), bytes.size(), false);
    for (std::thread& sender : senders) sender.join();
  }

 private:
  void transfer(int rank, std::byte* bytes, size_t count, bool out) const {
    const int socket = sockets_[static_cast<size_t>(rank)];
    while (count > 0) {
      const ssize_t done = out ? send(socket, bytes, count, MSG_NOSIGNAL) : recv(socket, bytes, count, 0);
      if (done <= 0) _exit(87);  // the other rank has failed, and says why
      bytes += done, count -= static_cast<size_t>(done);
    }
  }
  const int rank_;
  const std::vector<int> sockets_;
};

// Runs `body` as each of the ranks, in a process each; a failure in any of them is one of the test. This process must
// not have asked anything of the fake runtime.
inline void run_forked_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::vector<int>> sockets(static_cast<size_t>(ranks), std::vector<int>(static_cast<size_t>(ranks), -1));
  for (size_t a = 0; a < sockets.size(); ++a)
    for (size_t b = a + 1; b < sockets.size(); ++b) {
      int pair[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
      sockets[a][b] = pair[0], sockets[b][a] = pair[1];
    }
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(100);
      for (size_t other = 0; other < sockets.size(); ++other)
        for (const int socket : sockets[other])
          if (other != static_cast<size_t>(rank) && socket >= 0) close(socket);
      SocketCommunicator world(rank, sockets[static_cast<size_t>(rank)]);
      try {
        body(world);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
      std::fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (const auto& of_rank : sockets)
    for (const int socket : of_rank)
      if (socket >= 0) close(socket);
  for (size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank << " ended with " << status << "; what it has told stands above";
  }
}
}  // namespace linnet::testing
