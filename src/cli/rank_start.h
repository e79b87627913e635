// A command that several processes carry out together: starting them, and telling an error once.
#pragma once
#include <string>

#include "base/function_ref.h"
#include "comm/communicator.h"

namespace linnet {

// --ranks N: replaces this process by mpirun, which starts the same command N times without that option. Returns only
// by an error.
[[noreturn]] void start_ranks(int ranks);

// Runs `body` with the ranks of this process's starter and returns the exit code. Ranks other than 0 print nothing but
// errors of their own.
int run_as_rank(FunctionRef<int(Communicator& world)> body);

}  // namespace linnet
