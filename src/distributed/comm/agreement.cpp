#include "distributed/comm/agreement.h"
#include <algorithm>
#include <exception>
#include <limits>

namespace linnet {

namespace {

// One character for the kind and the message behind it; empty: no error.
std::string packed(const Error& error) {
  return std::string(1, static_cast<char>('0' + static_cast<int>(error.kind()))) + error.what();
}

// Cuts the first line off `text`.
std::string next_line(std::string& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string line = text.substr(0, end);
  text.erase(0, end + 1);
  return line;
}

// "learning_rate = 0.1, not learning_rate = 0.2"
std::string difference(std::string there, std::string here) {
  while (!there.empty() || !here.empty()) {
    const std::string a = next_line(there), b = next_line(here);
    if (a != b) return (a.empty() ? "nothing" : a) + ", not " + (b.empty() ? "nothing" : b);
  }
  return "";
}

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

void run_on_all(Communicator& world, FunctionRef<void()> work) {
  if (world.size() == 1) return work();
  std::string problem;
  try {
    work();
  } catch (const Error& error) {
    problem = packed(error);
  } catch (const std::exception& error) {
    problem = packed(Error(ErrorKind::kSystem, error.what()));
  }
  const std::vector<std::string> problems = gather_texts(world, problem);
  for (size_t rank = 0; rank < problems.size(); ++rank)
    if (const std::string& text = problems[rank]; !text.empty())
      throw AgreedError(static_cast<ErrorKind>(text[0] - '0'),
                        (rank == 0 ? "" : "rank " + std::to_string(rank) + ": ") + text.substr(1));
}

void check_equal(Communicator& world, const std::string& what, const std::string& text) {
  const std::vector<std::string> texts = gather_texts(world, text);
  for (size_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != texts[0])
      throw AgreedError(ErrorKind::kUser, "rank " + std::to_string(rank) + " has another " + what +
                                              " than rank 0: " + difference(texts[rank], texts[0]));
}

bool any_rank(Communicator& world, bool here) {
  const auto mine = static_cast<std::byte>(here);
  std::vector<std::byte> all(static_cast<size_t>(world.size()));
  all_gather(world, {&mine, 1}, all);
  return std::ranges::count(all, std::byte{1}) > 0;
}

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
