// A command that several processes carry out together: starting them, and telling an error once.
#pragma once
#include "base/function_ref.h"
#include "distributed/comm/communicator.h"

namespace linnet {

// --ranks N: starts this process's command N times without that option, by mpirun, and returns its exit code. A signal
// that asks for a stop is passed on to all ranks, which save and end; a second one ends them within seconds. When this
// process is killed, they end too. `restarts`: how often ranks that died are started again, with --resume.
int start_ranks(int ranks, int restarts);

// Runs `body` with the ranks of this process's starter and returns the exit code. Ranks other than 0 print nothing but
// errors of their own.
int run_as_rank(FunctionRef<int(Communicator& world)> body);

}  // namespace linnet
