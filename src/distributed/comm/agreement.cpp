#include "distributed/comm/agreement.h"
#include <algorithm>
#include <exception>
#include <limits>
#include "base/fail.h"
#include "base/numbers.h"
#include "base/process.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace linnet {
namespace {
// One character for the kind, then the message; empty: no error.
std::string packed(ErrorKind kind, const char* message) {
  return std::string(1, static_cast<char>('0' + static_cast<int>(kind))) + message;
}

// "learning_rate = 0.1, not learning_rate = 0.2"
std::string difference(const std::string& there, const std::string& here) {
  std::vector<std::string_view> theirs = split(there, '\n'), own = split(here, '\n');
  theirs.resize(std::max(theirs.size(), own.size())), own.resize(theirs.size());
  for (size_t i = 0; i < own.size(); ++i)
    if (theirs[i] != own[i])
      return text_of_parts(theirs[i].empty() ? "nothing" : theirs[i], ", not ", own[i].empty() ? "nothing" : own[i]);
  return "";
}

constexpr int kQuestions = 20;

void send(Communicator& world, int to, int64_t value) { send(world, to, std::as_bytes(std::span(&value, 1))); }

int64_t receive(Communicator& world, int from) {
  int64_t value = 0;
  receive(world, from, std::as_writable_bytes(std::span(&value, 1)));
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

// Each text follows its length and a space.
std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += std::to_string(text.size()) + " " + text;
  return all;
}

// Reads the next text and moves `at` behind it.
std::string next_text(const std::string& all, size_t& at) {
  const size_t space = all.find(' ', at), length = std::stoul(all.substr(at, space - at));
  at = space + 1 + length;
  return all.substr(space + 1, length);
}
}  // namespace

void run_on_all(Communicator& world, FunctionRef<void()> work) {
  if (world.size() == 1) return work();
  std::string problem;
  try {
    work();
  } catch (const Error& error) {
    problem = packed(error.kind(), error.what());
  } catch (const std::exception& error) {
    problem = packed(ErrorKind::kSystem, error.what());
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
  return contains(all_gather(world, static_cast<std::byte>(here)), std::byte{1});
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

void SharedWork::do_part(FunctionRef<void()> work) const {
  if (world_.size() == 1) return work();
  bool is_stopped = false;
  run_on_all(world_, [&] {
    try {
      work();
    } catch (const Stopped&) {
      is_stopped = true;
    }
  });
  if (any_rank(world_, is_stopped)) throw Stopped{};
}

std::vector<int64_t> SharedWork::own_items(int64_t count) const {
  std::vector<int64_t> items;
  for (int64_t item = world_.rank(); item < count; item += world_.size()) items.push_back(item);
  return items;
}

std::vector<double> SharedWork::numbers(
    int64_t count, int64_t width, FunctionRef<void(int64_t item, std::span<double> result)> work) const {
  const int64_t ranks = world_.size(), most = ceil_div(count, ranks);  // items of a rank
  const auto size = static_cast<size_t>(width);
  std::vector<double> own(static_cast<size_t>(most) * size), all(own.size() * static_cast<size_t>(ranks));
  const auto place = [&](std::vector<double>& values, int64_t index) {
    return std::span(values).subspan(static_cast<size_t>(index) * size, size);
  };
  do_part([&] {
    Phase phase("evaluating", Phase::kLongPatience);
    for (const int64_t item : own_items(count)) phase.tick(item, count), work(item, place(own, item / ranks));
  });
  all_gather(world_, std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  std::vector<double> results(static_cast<size_t>(count) * size);
  for (int64_t item = 0; item < count; ++item)
    std::ranges::copy(place(all, item % ranks * most + item / ranks), place(results, item).begin());
  return results;
}

std::vector<std::string> SharedWork::texts(
    int64_t count, FunctionRef<std::vector<std::string>(std::span<const int64_t> items)> work) const {
  const std::vector<int64_t> items = own_items(count);
  std::vector<std::string> own;
  do_part([&] {
    const TimedPhase phase("evaluating", Phase::kLongPatience);
    own = work(items);
    if (own.size() != items.size()) fail_internal("shared work gave another number of texts than it has items");
  });
  const std::vector<std::string> all = gather_texts(world_, joined(own));
  std::vector<size_t> next(all.size());
  return mapped(count, [&](int64_t item) {
    const auto rank = static_cast<size_t>(item % world_.size());
    return next_text(all[rank], next[rank]);
  });
}

std::string SharedWork::text(FunctionRef<std::string()> work) const {
  const int last = world_.size() - 1;
  std::string made;
  do_part([&] {
    if (world_.rank() == last) made = work();
  });
  return broadcast_text(world_, last, std::move(made));
}
}  // namespace linnet
