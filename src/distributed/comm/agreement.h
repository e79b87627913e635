// What all ranks must do alike or not at all.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>
#include "base/error.h"
#include "base/functions.h"
#include "distributed/comm/communicator.h"

namespace linnet {
// An error that every rank throws with the same text, so only rank 0 reports it.
class AgreedError : public Error {
  using Error::Error;
};

// Runs `work` on every rank. If it throws on some ranks, all throw AgreedError with the message of the first of them,
// which is named unless it is rank 0. With one rank it only runs the work.
void run_on_all(Communicator& world, FunctionRef<void()> work);

// Throws AgreedError if a rank's text differs from rank 0's: "rank 2 has another WHAT than rank 0: THERE, not HERE",
// with the first lines that differ.
void check_equal(Communicator& world, const std::string& what, const std::string& text);

bool any_rank(Communicator& world, bool here);

// How far this rank's clock is ahead of rank 0's, in the clock's unit. Collective. Rank 0 asks each other rank several
// times and takes the fastest answer, which is wrong by at most half of its round trip.
int64_t clock_offset(Communicator& world, FunctionRef<int64_t()> clock);

// Work that ranks divide and whose results all of them need, such as evaluations. Rank r does items r, r + ranks, r + 2
// ranks, ... Results are joined in the order of the items, so they do not depend on the number of ranks.
class SharedWork {
 public:
  explicit SharedWork(Communicator& world) : world_(world) {}
  static SharedWork alone() { return SharedWork(single_process()); }

  // Collective, in the same order on all ranks. An error on one is an AgreedError on all; if one throws Stopped all do.

  // Calls work(item, result) for this rank's items of `count`, `width` numbers each. Returns those of all items.
  std::vector<double> numbers(
      int64_t count, int64_t width, FunctionRef<void(int64_t item, std::span<double> result)> work) const;
  // Calls work(items) with all of this rank's items of `count`, for a text of each. Returns those of all items.
  std::vector<std::string> texts(
      int64_t count, FunctionRef<std::vector<std::string>(std::span<const int64_t> items)> work) const;
  // A text made by the last rank, which has the fewest items.
  std::string text(FunctionRef<std::string()> work) const;

 private:
  void do_part(FunctionRef<void()> work) const;
  std::vector<int64_t> own_items(int64_t count) const;

  Communicator& world_;
};
}  // namespace linnet
