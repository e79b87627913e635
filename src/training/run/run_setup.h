// What a run begins with: a trainer's options by the configuration; and for all ranks rank 0's configuration, data,
// assets and weights. Rank 0 alone accesses the run folder.
#pragma once
#include "base/functions.h"
#include "config/config.h"
#include "distributed/comm/communicator.h"
#include "training/run/run_folder.h"
#include "training/run/training_run.h"
#include "training/trainer/checkpoint.h"
#include "training/trainer/schedule.h"
#include "training/trainer/trainer.h"

namespace linnet {
template <> inline constexpr std::array kEnumNames<Schedule::Kind>{"constant", "linear", "cosine", "inverse_sqrt"};

// "fp32", "tf32", "bf16", "fp16"; for "int8", the precision of the products that stay in floating point.
Precision precision_of(const std::string& name);
// [[train.groups]] and `freeze`; with adapters, all but adapters and new heads is frozen too.
std::vector<ParameterGroup> parameter_groups(const Config& config);
TrainerOptions trainer_options(const Config& config, bool training, bool verify_plans = true);

Schedule schedule_of(const Config& config);  // without its last step
// The last step by max_steps or max_epochs, with `batches` an epoch; 0: unknown.
int64_t last_step(const TrainConfig& config, int64_t batches);

// data.json in a run folder: sizes and checksums of the data, so that a resumed run notices changes.
struct DataFingerprint {
  struct Entry {
    std::string key;       // a configuration key: "train_source", or "data_dir" for a folder of images
    uint64_t bytes;        // of the file, or of all files in the folder
    std::string checksum;  // of the first, the last and 62 blocks between; for a folder, of names and sizes
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;

  static DataFingerprint of(const Config& config);         // skips pipes and devices, which can be read only once
  static DataFingerprint load(const std::string& folder);  // without entries if the folder has no data.json
  void save(const std::string& folder) const;

  // Keys that both have with different data.
  std::vector<std::string> changes(const DataFingerprint& now) const;
};

// Takes a new folder, or resumes one whose configuration agrees. Returns the folder of the task's assets; empty: they
// are made anew. User error if the folder cannot be taken.
std::string open_folder(TrainRequest& request, RunFolder& folder);

// Fixes the number of shards, which then stays the same for any number of ranks.
void divide_into_shards(Config& config);

void check_space(const RunFolder& folder, const TrainingState& states);

// AgreedError if a rank's program, instruction set, configuration or data differ from rank 0's.
void check_ranks_agree(Communicator& world, const std::string& program, const Config& config);
// The same for assets and batches made from the data.
void check_tasks_agree(Communicator& world, TrainingTask& task);

// Rank 0's configuration with this process's own local settings.
Config share_config(Communicator& world, const Config& config);

// Rank 0 makes the task with `assets` (a run folder, or empty); the others with rank 0's assets, in a temporary folder.
// `make` takes its configuration from `config`, of which rank 0 settles micro_batches.
using MakeTaskFrom = FunctionRef<std::unique_ptr<TrainingTask>(const std::string& assets)>;
std::unique_ptr<TrainingTask> make_shared_task(
    Communicator& world, const std::string& assets, Config& config, MakeTaskFrom make);

// The forecast of memory; with a pipeline, one for each stage. Every rank calls it.
std::string forecast_of_all(Communicator& world, TrainingTask& task);

// Sends rank 0's undivided states and progress to all ranks.
void share_state(Communicator& world, Trainer& trainer, Progress& progress);

// "2 threads, avx512, fp32", or the GPU and its precision; "4 ranks of 2 threads, ...".
std::string where_it_runs(const TrainConfig& train, int threads, int ranks);
}  // namespace linnet
