// Aligns the clocks of ranks, which may be on several machines.
#pragma once
#include <cstdint>

#include "base/function_ref.h"
#include "distributed/comm/communicator.h"

namespace linnet {

// How far this rank's clock is ahead of rank 0's, in the clock's unit. Every rank calls it. Rank 0 asks each of the
// others some times and believes the answer that came soonest, which is wrong by at most half of the time it took.
int64_t clock_offset(Communicator& world, FunctionRef<int64_t()> clock);

}  // namespace linnet
