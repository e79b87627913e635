#include "training/run/run_checkpoints.h"

#include "base/files.h"
#include "base/log.h"
#include "distributed/comm/agreement.h"
#include "engine/kernels/isa.h"
#include "engine/plan/state_names.h"
#include "training/run/divided_weights.h"
#include "training/run/kept_checkpoints.h"
#include "training/run/quantized_steps.h"
#include "training/run/rank_setup.h"

namespace linnet {

void load_run_weights(Trainer& trainer, const RunFolder& from) {
  trainer.load_parameters(
      [&](const ParameterTarget& parameters) { load_model(from.model_path(), trainer.layout(), parameters); });
}

RunCheckpoints::RunCheckpoints(const TrainRequest& request, const RunFolder& folder, TrainingTask& task,
                               RankGroups& groups)
    : request_(request),
      config_(request.config.train),
      folder_(folder),
      task_(task),
      trainer_(task.trainer()),
      world_(*request.world) {
  if (is_divided()) whole_.emplace(trainer_, groups.data, groups.tensor, groups.pipeline);
}

Progress RunCheckpoints::load() {
  Progress progress;
  bool resumed = false;
  run_on_all(world_, [&] {
    task_.initialize();
    if (is_first_rank()) resumed = load_whole(progress);
  });
  share_state(world_, trainer_, progress);
  if (is_divided()) load_divided(any_rank(world_, resumed));
  last_saved_ = progress.step;
  return progress;
}

// On rank 0: all that it has as a whole. Whether that is of the run's checkpoint.
bool RunCheckpoints::load_whole(Progress& progress) {
  const bool resumed = request_.resume && folder_.has_state();
  if (resumed) {
    Metadata metadata;
    progress = load_training_state(folder_.state_path(), trainer_, &metadata);
    if (progress.step >= config_.max_steps)
      log_info("the run has its " + std::to_string(progress.step) + " steps already; --steps N goes on to N");
    else
      log_info("resuming at step " + std::to_string(progress.step));
    if (metadata["isa"] != current_isa())
      log_warning("the run was trained with " + metadata["isa"] + " kernels, now " + current_isa() +
                  ": losses will differ in the last digits");
  } else if (!request_.init.empty() && !shares_layers()) {
    load_run_weights(trainer_, RunFolder(request_.init));
  }
  if (!resumed && config_.quantize != "none") calibrate_steps(task_);
  return resumed;
}

void RunCheckpoints::load_divided(bool resumed) {
  if (resumed) return load_divided_states(folder_.state_path(), trainer_, *whole_);
  if (!shares_layers()) return;
  if (!request_.init.empty()) {
    load_divided_model(RunFolder(request_.init).model_path(), trainer_, *whole_);
    trainer_.reset_ema();
  } else if (any_rank(world_, is_first_rank() && task_.starts_from())) {
    load_divided_weights(world_, trainer_, *whole_, task_.starts_from(), static_cast<uint64_t>(config_.seed));
  }
}

void RunCheckpoints::save_best(const Progress& progress, const std::string& state) {
  save_weights(progress, folder_.model_path(), state);
}

void RunCheckpoints::save_weights(const Progress& progress, const std::string& path, const std::string& state) {
  if (shares_layers()) return save_divided_model(path, trainer_, state, metadata(progress), *whole_);
  if (!is_first_rank()) return;
  trainer_.pull_states();
  save_model(path, trainer_.layout(), trainer_.values(state), metadata(progress));
}

void RunCheckpoints::save(const Progress& progress) {
  if (is_first_rank())
    save_training_state(folder_.state_path(), trainer_, progress, metadata(progress), whole_ ? &*whole_ : nullptr);
  else if (whole_)
    give_training_state(trainer_, *whole_);
  last_saved_ = progress.step;
  if (progress.step > 0 && is_due(progress.step)) keep(progress);
}

bool RunCheckpoints::is_due(int64_t step) const {
  return step % config_.save_every == 0 || (config_.keep_every > 0 && step % config_.keep_every == 0);
}

void RunCheckpoints::keep(const Progress& progress) {
  const bool for_good = config_.keep_every > 0 && progress.step % config_.keep_every == 0;
  if (config_.keep_checkpoints == 0 && !for_good) return;
  save_weights(progress, kept_checkpoint_path(folder_.path(), progress.step), state::kParameters);
  if (is_first_rank()) remove_old_checkpoints(folder_.path(), config_);
}

bool RunCheckpoints::has_state() const { return is_first_rank() && file_exists(folder_.state_path()); }

Metadata RunCheckpoints::metadata(const Progress& progress) const {
  return {{"format", "linnet"},
          {"isa", current_isa()},
          {"trained_steps", std::to_string(progress.step)},
          {"seed", std::to_string(config_.seed)}};
}

}  // namespace linnet
