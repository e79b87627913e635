#include "distributed/comm/world.h"
#include <dlfcn.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include "base/fail.h"
#include "base/numbers.h"
#include "base/process.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace linnet {
namespace {
std::filesystem::path find_module() {
  const ModuleSearch search = search_module("liblinnet_mpi.so", "LINNET_MPI_MODULE");
  if (!search.found.empty()) return search.found;
  fail_user(
      "this program has no MPI module, which training by several ranks needs: install the package linnet-mpi, or build "
      "it where MPI is installed (Debian: libopenmpi-dev; looked for ",
      search.looked, ")");
}

class ModuleCommunicator : public Communicator {
 public:
  explicit ModuleCommunicator(const ModuleWorld& module) : module_(module) {}
  int rank() const override { return module_.rank; }
  int size() const override { return module_.size; }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, Wait wait) override {
    check(module_.exchange(outgoing, incoming, wait));
  }
  void leave() override { check(module_.leave()); }

 private:
  static void check(const char* problem) {
    if (problem) throw Error(ErrorKind::kSystem, problem);
  }
  const ModuleWorld& module_;
};

std::optional<std::string> on_path(const char* program) {
  const std::string path = environment("PATH");
  for (const std::string_view folder : split(path, ':'))
    if (const std::string file = std::string(folder) + "/" + program; access(file.c_str(), X_OK) == 0) return file;
  return {};
}

// Empty if the variable is unset or not a number.
std::optional<int> number_in(const char* variable) {
  const auto value = parse_number<int>(environment(variable));
  return value >= 0 ? value : std::nullopt;  // less than any number if it is empty
}

std::optional<Starter> starter_from(
    const char* name, const char* rank, const char* ranks, const char* ranks_here, const char* rank_here) {
  const std::optional<int> own = number_in(rank), all = number_in(ranks);
  if (!own || !all) return {};
  const int here = std::max(number_in(ranks_here).value_or(*all), 1);
  return Starter{name, *own, *all, here, number_in(rank_here).value_or(*own % here)};
}
}  // namespace

Communicator& join_world() {
  const std::optional<Starter> starter = find_starter();
  if (!starter || starter->ranks == 1) return single_process();
  static Communicator* world = [&] {
    constexpr auto kOpen = "linnet_mpi_open";
    // RTLD_GLOBAL: Open MPI loads plugins that need its symbols.
    void* module = load_module(find_module(), "MPI", kOpen, RTLD_GLOBAL);
    std::array<char, 1024> message{};
    const ModuleWorld* opened =
        reinterpret_cast<OpenWorld>(dlsym(module, kOpen))(comm_version(), message.data(), message.size());
    if (!opened) fail_user(message.data());
    return new ModuleCommunicator(*opened);
  }();
  if (world->size() != starter->ranks)
    fail_user(starter->name, " has started ", starter->ranks, " processes, and MPI sees ", world->size(),
        starter->name == "srun" ? "; start them with `srun --mpi=pmix`"
                                : "; the program and " + starter->name + " belong to different MPIs");
  return *world;
}

int threads_of_rank() {
  const int available = available_threads();
  const std::optional<Starter> starter = find_starter();
  const bool is_bound = available < sysconf(_SC_NPROCESSORS_ONLN);
  return starter && !is_bound ? std::max(available / starter->ranks_here, 1) : available;
}

std::vector<std::string> mpirun_command(int ranks, const std::vector<std::string>& arguments) {
  find_module();  // a missing one is told once
  const std::optional<std::string> mpirun = on_path("mpirun");
  if (!mpirun) fail_user("--ranks starts the ranks with mpirun, which is not installed (Debian: openmpi-bin)");
  std::vector<std::string> command{*mpirun, "-n", std::to_string(ranks), "--oversubscribe", "--bind-to", "none"};
  if (geteuid() == 0) command.emplace_back("--allow-run-as-root");
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

// Raise the number whenever ModuleWorld changes.
const char* comm_version() { return "linnet " LINNET_VERSION ", communicator 3, " __VERSION__; }

std::optional<Starter> find_starter() {
  if (const auto starter = starter_from("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"))
    return starter;
  // srun alone sets these; SLURM_NTASKS is also set in a batch script, which is one process.
  return starter_from("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID");
}

std::optional<Starter> find_torchrun() {
  if (find_starter() || !std::getenv("MASTER_ADDR")) return {};
  const std::optional<Starter> starter =
      starter_from("torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK");
  if (!starter || !number_in("LOCAL_RANK")) return {};
  if (starter->ranks_here != starter->ranks)
    fail_user("torchrun has started ", starter->ranks, " processes on several machines, ", starter->ranks_here,
        " of them here, and Linnet joins those of one machine only; start them with `mpirun --hostfile` or srun");
  return starter;
}
}  // namespace linnet
