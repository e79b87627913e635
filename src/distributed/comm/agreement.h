// What all ranks must do alike or not at all.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>
#include "base/error.h"
#include "base/function_ref.h"
#include "distributed/comm/communicator.h"

namespace linnet {

// An error that every rank throws with the same text, so that rank 0 alone has to tell it.
class AgreedError : public Error {
  using Error::Error;
};

// Runs `work` on every rank. When it throws an exception on some ranks, all ranks throw AgreedError with the message of
// the first of them, which is named unless it is rank 0. With one rank it only runs the work.
void run_on_all(Communicator& world, FunctionRef<void()> work);

// Throws AgreedError when a rank has another text than rank 0: "rank 2 has another WHAT than rank 0: THERE, not HERE",
// where the texts are given by their first lines that differ.
void check_equal(Communicator& world, const std::string& what, const std::string& text);

// Whether it is true on any rank.
bool any_rank(Communicator& world, bool here);

// Aligns the clocks of ranks, which may be on several machines.

// How far this rank's clock is ahead of rank 0's, in the clock's unit. Every rank calls it. Rank 0 asks each of the
// others some times and believes the answer that came soonest, which is wrong by at most half of the time it took.
int64_t clock_offset(Communicator& world, FunctionRef<int64_t()> clock);

// Work that ranks divide, of which every rank needs all results: evaluations. It is a list of items, of which rank r
// does r, r + ranks, r + 2 ranks, ...; the results are put together in the order of the items, so that what is made of
// them does not depend on the number of ranks.

class SharedWork {
 public:
  explicit SharedWork(Communicator& world) : world_(world) {}
  static SharedWork alone() { return SharedWork(single_process()); }

  // All ranks call these, in the same order. An error on any rank is an AgreedError on all; where a rank leaves its
  // part by Stopped (base/signals.h), all throw Stopped.

  // Calls work(item, result) for this rank's items of `count`, of `width` numbers each. Returns those of all items.
  std::vector<double> numbers(int64_t count, int64_t width,
                              FunctionRef<void(int64_t item, std::span<double> result)> work) const;
  // Calls work(items) with all of this rank's items of `count`, for a text of each. Returns those of all items.
  std::vector<std::string> texts(int64_t count,
                                 FunctionRef<std::vector<std::string>(std::span<const int64_t> items)> work) const;
  // A text that one rank makes: the last one, which has the fewest items.
  std::string text(FunctionRef<std::string()> work) const;

 private:
  void do_part(FunctionRef<void()> work) const;
  std::vector<int64_t> own_items(int64_t count) const;

  Communicator& world_;
};

}  // namespace linnet
