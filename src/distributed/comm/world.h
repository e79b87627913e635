// Joins the ranks that a starter (mpirun, srun) has begun, through liblinnet_mpi.so, which is loaded only then.
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "distributed/comm/communicator.h"

namespace linnet {

// What a starter says of this process by environment variables.
struct Starter {
  std::string name;  // "mpirun", "srun"
  int rank = 0, ranks = 1;
  int ranks_here = 1;  // on this machine
  int rank_here = 0;   // among them
};

// Empty: the process was started alone. User error for a starter whose ranks cannot be joined.
std::optional<Starter> find_starter();

// The ranks of PyTorch's torchrun, which sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and MASTER_ADDR. Its
// processes know no MPI: the first of them has to start the ranks by mpirun. User error when they are spread over
// several machines. Empty: torchrun did not start this process, or mpirun or srun did so inside of it.
std::optional<Starter> find_torchrun();

// The ranks of the starter; single_process() when the process was started alone. Never ends before the process.
// User error in one line when the module is missing, is of another build, or sees another number of ranks.
Communicator& join_world();

// How many threads a rank has when none were asked for: those it may use, divided by the ranks of this machine unless
// the starter has bound each rank to processors of its own.
int threads_of_rank();

// The command that starts `ranks` ranks of `arguments` (a program's path first) here. User error without mpirun.
std::vector<std::string> mpirun_command(int ranks, const std::vector<std::string>& arguments);

// The module's side of a Communicator, as plain functions: classes that are compiled into both the program and the
// module would be two types. They return null, or the message of an error, which is valid until the next call.
struct ModuleWorld {
  int rank, size;
  const char* (*exchange)(std::span<const Communicator::Outgoing> outgoing,
                          std::span<const Communicator::Incoming> incoming, Communicator::Wait wait);
  const char* (*leave)();
};

// The module's `linnet_mpi_open`: the ranks that were started together, or null and a message. Of the program's build.
using OpenWorld = const ModuleWorld* (*)(const char* program_version, char* message, size_t message_size);
const char* comm_version();

}  // namespace linnet
