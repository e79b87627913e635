// Joins the ranks that a starter (mpirun, srun, torchrun) has begun, through the module liblinnet_mpi.so, which is
// loaded only then.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace linnet {

// What a starter says of this process by environment variables.
struct Starter {
  std::string name;  // "mpirun", "srun"
  int rank = 0, ranks = 1;
  int ranks_here = 1;  // on this machine
};

// Empty: the process was started alone. User error for a starter whose ranks cannot be joined.
std::optional<Starter> find_starter();

// The ranks of the starter; single_process() when the process was started alone. Never ends before the process.
// User error in one line when the module is missing, is of another build, or sees another number of ranks.
Communicator& join_world();

// How many threads a rank has when none were asked for: those it may use, divided by the ranks of this machine unless
// the starter has bound each rank to processors of its own.
int threads_of_rank();

// The command that starts `ranks` ranks of `arguments` (a program's path first) on this machine. User error when there
// is no mpirun.
std::vector<std::string> mpirun_command(int ranks, const std::vector<std::string>& arguments);

// What the module exports, as `linnet_mpi_open`: the communicator of all ranks, or null and a message. Module and
// program share C++ types, so they must be of one build.
using OpenWorld = Communicator* (*)(const char* program_version, char* message, size_t message_size);
const char* comm_version();

}  // namespace linnet
