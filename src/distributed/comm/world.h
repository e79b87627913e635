// Joins the ranks begun by a starter (mpirun, srun) through liblinnet_mpi.so, which is loaded only then.
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "distributed/comm/communicator.h"

namespace linnet {
// What a starter's environment variables say of this process.
struct Starter {
  std::string name;  // "mpirun", "srun"
  int rank = 0, ranks = 1;
  int ranks_here = 1;  // on this machine
  int rank_here = 0;   // among them
};

// Empty if the process was started alone. User error for a starter whose ranks cannot be joined.
std::optional<Starter> find_starter();

// The ranks of PyTorch's torchrun, which sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and MASTER_ADDR but does
// not start MPI: the first of them has to start the ranks by mpirun. User error if they are on several machines. Empty
// without torchrun, or if mpirun or srun started this process inside of it.
std::optional<Starter> find_torchrun();

// The ranks of the starter, or single_process(). Lives as long as the process. User error if the module is missing, is
// of another build, or sees another number of ranks.
Communicator& join_world();

// The default number of threads of a rank: those it may use, divided by the ranks of this machine unless the starter
// has bound each rank to its own processors.
int threads_of_rank();

// The command that starts `ranks` ranks of `arguments` (a program's path first) here. User error without mpirun.
std::vector<std::string> mpirun_command(int ranks, const std::vector<std::string>& arguments);

// The module's Communicator as plain functions, as classes compiled into both program and module would be two types.
// They return null, or an error's message, valid until the next call.
struct ModuleWorld {
  int rank, size;
  const char* (*exchange)(std::span<const Communicator::Outgoing> outgoing,
      std::span<const Communicator::Incoming> incoming, Communicator::Wait wait);
  const char* (*leave)();
};

// The module's `linnet_mpi_open`: the ranks, or null and a message. Program and module must be of one build.
using OpenWorld = const ModuleWorld* (*)(const char* program_version, char* message, size_t message_size);
const char* comm_version();
}  // namespace linnet
