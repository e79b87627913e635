#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "distributed/comm/world.h"

namespace linnet {
namespace {

// Empty when the variable is not set or not a number.
std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return {};
  const std::string_view digits = text;
  int value = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (problem != std::errc() || end != digits.data() + digits.size() || value < 0) return {};
  return value;
}

std::optional<Starter> starter_from(const char* name, const char* rank, const char* ranks, const char* ranks_here,
                                    const char* rank_here) {
  const std::optional<int> own = number_in(rank), all = number_in(ranks);
  if (!own || !all) return {};
  const int here = std::max(number_in(ranks_here).value_or(*all), 1);
  return Starter{name, *own, *all, here, number_in(rank_here).value_or(*own % here)};
}

}  // namespace

std::optional<Starter> find_starter() {
  if (const auto starter = starter_from("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"))
    return starter;
  // SLURM_NTASKS is also set in a batch script, which is one process; these are set by srun alone.
  if (const auto starter =
          starter_from("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"))
    return starter;
  return {};
}

std::optional<Starter> find_torchrun() {
  if (find_starter() || !std::getenv("MASTER_ADDR")) return {};
  const std::optional<Starter> starter =
      starter_from("torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK");
  if (!starter || !number_in("LOCAL_RANK")) return {};
  if (starter->ranks_here != starter->ranks)
    fail_user("torchrun has started " + std::to_string(starter->ranks) + " processes on several machines, " +
              std::to_string(starter->ranks_here) +
              " of them here, and Linnet joins those of one machine only; start them with `mpirun --hostfile` or srun");
  return starter;
}

}  // namespace linnet
