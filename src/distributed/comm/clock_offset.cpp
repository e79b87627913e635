#include "distributed/comm/clock_offset.h"

#include <limits>

namespace linnet {
namespace {

constexpr int kQuestions = 20;

void send(Communicator& world, int to, const int64_t& value) {
  const Communicator::Outgoing message{to, std::as_bytes(std::span(&value, 1))};
  world.exchange({&message, 1}, {});
}

int64_t receive(Communicator& world, int from) {
  int64_t value = 0;
  const Communicator::Incoming message{from, std::as_writable_bytes(std::span(&value, 1))};
  world.exchange({}, {&message, 1});
  return value;
}

int64_t offset_of(Communicator& world, int rank, FunctionRef<int64_t()> clock) {
  int64_t offset = 0, soonest = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kQuestions; ++i) {
    const int64_t asked = clock();
    send(world, rank, asked);
    const int64_t theirs = receive(world, rank), took = clock() - asked;
    if (took >= soonest) continue;
    soonest = took;
    offset = theirs - (asked + took / 2);
  }
  return offset;
}

}  // namespace

int64_t clock_offset(Communicator& world, FunctionRef<int64_t()> clock) {
  if (world.rank() == 0) {
    for (int rank = 1; rank < world.size(); ++rank) send(world, rank, offset_of(world, rank, clock));
    return 0;
  }
  for (int i = 0; i < kQuestions; ++i) {
    receive(world, 0);
    send(world, 0, clock());
  }
  return receive(world, 0);
}

}  // namespace linnet
