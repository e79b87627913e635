#include "training/run/open_run.h"

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "config/parallel_layout.h"
#include "training/trainer/checkpoint.h"

namespace linnet {

std::string open_folder(TrainRequest& request, RunFolder& folder) {
  if (folder.in_use()) {
    if (!request.resume)
      fail_user("run folder '" + folder.path() + "' exists already; --resume goes on with it, --run DIR names another");
    Config saved = folder.load_config();
    if (saved.train.data_shards == 0) saved.train.data_shards = 1;  // made before runs were divided
    if (request.config.train.data_shards == 0) request.config.train.data_shards = saved.train.data_shards;
    // What a run began with says how far in the data it is: another limit of memory does not cut its batches anew.
    if (saved.train.micro_batches == 0) saved.train.micro_batches = 1;
    if (request.config.train.micro_batches == 0) request.config.train.micro_batches = saved.train.micro_batches;
    for (const std::string& key : keep_saved_values(saved, request.config))
      log_info("resuming with the run's own " + key);
    check_resumable(saved, request.config, folder.path());
    // As `linnet average` makes it. A new run in it would write over the weights.
    if (!folder.has_state() && file_exists(folder.model_path()) && !file_exists(folder.metrics_path()))
      fail_user("'" + folder.path() + "' has weights and no state of training to go on with; --init " + folder.path() +
                " --run DIR begins a new run with them");
    folder.lock();
    if (folder.has_state()) return folder.path();
  } else {
    if (request.resume && !file_exists(folder.path()))
      log_warning("there is no run folder '" + folder.path() + "' to go on with: a new run begins");
    folder.lock();
  }
  if (request.init.empty()) return "";
  if (!(with_absolute_paths(RunFolder(request.init).load_config()).model == request.config.model))
    fail_user("--init: the model of run '" + request.init + "' is another one; it differs in its [model] section");
  return request.init;
}

namespace {

int data_ranks(const Config& config) { return parallel_layout(config.train.parallel, config.process.ranks).data; }

}  // namespace

void divide_into_shards(Config& config) {
  if (config.train.data_shards == 0) config.train.data_shards = data_ranks(config);
  check_share({config.train.data_shards, 0, data_ranks(config)});
  validate(config);
}

void check_space(const RunFolder& folder, const Trainer& trainer) {
  const uint64_t need = checkpoint_bytes(trainer) + (1 << 20), free = free_disk_bytes(folder.path());
  if (need > free)
    fail_user("run folder '" + folder.path() + "' needs " + std::to_string(need / 1000000) +
              " MB for its checkpoints, and its disk has " + std::to_string(free / 1000000) + " MB free");
}

}  // namespace linnet
