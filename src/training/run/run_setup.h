// How the ranks of a run begin with the same configuration, data, assets and weights. Rank 0 alone reads and writes the
// run folder; the others get what they need from it, as their machines may not see the folder.
#pragma once
#include "base/function_ref.h"
#include "config/config.h"
#include "distributed/comm/communicator.h"
#include "training/run/run_folder.h"
#include "training/run/training_run.h"
#include "training/run/training_task.h"
#include "training/trainer/checkpoint.h"

namespace linnet {

// data.json in a run folder: what the data looked like, so that a resumed run notices when they are others now.
struct DataFingerprint {
  struct Entry {
    std::string key;       // of the configuration: "train_source", or "data_dir" for a folder of images
    uint64_t bytes;        // of the file, or of all files in the folder
    std::string checksum;  // of samples: the first, the last and 62 blocks between; of a folder, of names and sizes
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;

  // Pipes and devices are left out: they can be read only once.
  static DataFingerprint of(const Config& config);
  // Of a run folder; without entries when it has none.
  static DataFingerprint load(const std::string& folder);
  void save(const std::string& folder) const;

  // The keys whose data are in both and differ.
  std::vector<std::string> changes(const DataFingerprint& now) const;
};

// Takes the folder: a new one, or one to resume whose configuration agrees. Returns where the task's assets come from;
// empty: they are made. User error for a folder that cannot be taken.
std::string open_folder(TrainRequest& request, RunFolder& folder);

// From here on the number of shards is a number, which stays that of the run on any number of ranks.
void divide_into_shards(Config& config);

// User error when the disk has no room for the checkpoints.
void check_space(const RunFolder& folder, const TrainingState& states);

// AgreedError in one line where a rank has another program, instruction set, configuration or data than rank 0.
void check_ranks_agree(Communicator& world, const std::string& program, const Config& config);
// The same of what was made of the data.
void check_tasks_agree(Communicator& world, TrainingTask& task);

// Rank 0's configuration, in which only what concerns this process is its own.
Config share_config(Communicator& world, const Config& config);

// Rank 0 makes the task with `assets` (a run folder, or empty); the others make it with the assets that rank 0's task
// has, in a temporary folder. `make` takes its configuration from `config`, of which rank 0 settles micro_batches.
using MakeTaskFrom = FunctionRef<std::unique_ptr<TrainingTask>(const std::string& assets)>;
std::unique_ptr<TrainingTask> make_shared_task(Communicator& world, const std::string& assets, Config& config,
                                               MakeTaskFrom make);

// The task's forecast of memory; of a pipeline, whose stages take different amounts, that of each. Every rank calls it.
std::string forecast_of_all(Communicator& world, TrainingTask& task);

// The states of rank 0's trainer that ranks do not divide, and where the run stands.
void share_state(Communicator& world, Trainer& trainer, Progress& progress);

// What a run trains on: "2 threads, avx512, fp32", or the GPU and its precision; "4 ranks of 2 threads, ...".
std::string where_it_runs(const TrainConfig& train, int threads, int ranks);

}  // namespace linnet
