#include <cstdio>
#include <string>
#include <vector>
#include "app/cli/plan_parts.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "engine/exec/backend.h"
#include "engine/kernels/bandwidth.h"
#include "engine/kernels/peak.h"
#include "tasks/planning/plan_memory.h"
#include "training/run/trainer_options.h"
#include "training/trainer/trainer.h"

namespace linnet {
namespace {

constexpr int64_t kRank = 8;  // of adapters, where the configuration has none

uint64_t item_bytes(const MemoryForecast& forecast, const std::string& name) {
  uint64_t bytes = 0;
  for (const MemoryItem& item : forecast.items) bytes += item.name == name ? item.bytes : 0;
  return bytes;
}

// The speeds of this machine's products by the name of the precision, and of its memory.
class Machine {
 public:
  explicit Machine(int threads) : pool_(threads), bandwidth_(measured_bandwidth(pool_, size_t{128} << 20)) {}
  MachineSpeed speed(const std::string& precision) {
    return {1e9 * measured_peak_gflops(cpu_precision(precision_of(precision)), pool_), bandwidth_};
  }

 private:
  ThreadPool pool_;
  const double bandwidth_;
};

void print_line(const Config& config, const MachineSpeed& speed, uint64_t memory) {
  const TrainConfig& train = config.train;
  const PlanAnswer answer = plan_memory({.config = config, .memory = memory, .speed = speed});
  const auto megabytes = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  const uint64_t peak = answer.forecast.peak();
  std::printf("%-9s %-10s %-10s %-5s %10.1f %10.1f %12.1f %9.3f%s\n", train.precision.c_str(), train.recompute.c_str(),
              train.optimizer.c_str(), config.lora.rank > 0 ? "yes" : "no", megabytes(peak),
              megabytes(item_bytes(answer.forecast, memory_kind_name(MemoryKind::kOptimizer))),
              megabytes(item_bytes(answer.forecast, memory_kind_name(MemoryKind::kActivations))), answer.step_seconds,
              peak > memory ? "  does not fit" : "");
  std::fflush(stdout);
}

}  // namespace

void print_plan_sweep(const Config& config, uint64_t memory) {
  if (config.train.device != "cpu")
    fail_user("--sweep plans for the CPU: leave device = \"" + config.train.device + "\" out");
  const TrainerOptions options = trainer_options(config, true);
  Machine machine(options.threads);
  // Adapters need a model folder, and a task that takes them.
  std::vector<int64_t> ranks{0};
  if (!config.model.from.empty()) ranks.push_back(config.lora.rank > 0 ? config.lora.rank : kRank);
  std::printf("%-9s %-10s %-10s %-5s %10s %10s %12s %9s\n", "precision", "recompute", "optimizer", "LoRA", "peak MB",
              "optimizer", "activations", "s a step");
  for (const char* precision : {"fp32", "bf16"}) {
    const MachineSpeed speed = machine.speed(precision);
    for (const char* recompute : {"none", "attention", "block"})
      for (const char* optimizer : {"adamw", "adamw8bit", "lion", "muon", "adafactor"})
        for (const int64_t rank : ranks) {
          Config other = config;
          other.train.precision = precision, other.train.recompute = recompute, other.train.optimizer = optimizer;
          other.train.memory.clear();
          other.lora.rank = rank;
          if (rank == 0) other.lora.targets.clear();
          print_line(other, speed, memory);
          silence_log();  // what was said of the data holds for every line
        }
  }
}

}  // namespace linnet
