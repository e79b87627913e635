// Runs a command on several processes, and reports an error once.
#pragma once
#include "base/function_ref.h"
#include "distributed/comm/communicator.h"

namespace linnet {
// --ranks N: runs this command N times by mpirun without that option; returns its exit code. A stop signal makes all
// ranks save and end; a second one ends them within seconds. They also end if this process is killed. `restarts`: how
// often dead ranks are restarted with --resume.
int start_ranks(int ranks, int restarts);

// Runs `body` on the starter's ranks; returns the exit code. Ranks other than 0 only print their own errors.
int run_as_rank(FunctionRef<int(Communicator& world)> body);
}  // namespace linnet
