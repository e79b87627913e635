// `linnet bench network --ranks N`: how fast ranks exchange messages, as --network of `linnet plan` takes it.
#pragma once

namespace linnet {

// `ranks` above 0: starts so many on this machine. Otherwise measures with the ranks that a starter has begun.
// `threads`: of each rank, which compute when it is measured whether messages move meanwhile; 0: as many as there are
// processors. Returns the exit code.
int bench_network(int ranks, int threads, bool json);

}  // namespace linnet
