// What all ranks must do alike or not at all.
#pragma once
#include <cstdint>
#include <string>
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

}  // namespace linnet
