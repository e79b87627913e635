#include "app/training_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <vector>

#include "app/run_reporter.h"
#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "exec/backend.h"
#include "kernels/isa.h"
#include "train/schedule.h"

namespace linnet {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Schedule schedule_of(const TrainConfig& config) {
  Schedule schedule;
  using Kind = Schedule::Kind;
  schedule.kind = config.schedule == "linear"         ? Kind::kLinear
                  : config.schedule == "cosine"       ? Kind::kCosine
                  : config.schedule == "inverse_sqrt" ? Kind::kInverseSqrt
                                                      : Kind::kConstant;
  schedule.peak = config.learning_rate, schedule.final = config.final_learning_rate;
  schedule.warmup_steps = config.warmup_steps, schedule.max_steps = config.max_steps;
  return schedule;
}

// "2 threads, avx512, fp32", or the GPU and what its precision means.
std::string where_it_runs(const TrainConfig& train, int threads) {
  const Backend* backend = open_backend(train.device);
  const bool other = train.attention_precision != "same" && train.attention_precision != train.precision;
  const std::string attention = other ? ", " + train.attention_precision + " products in attention" : "";
  if (!backend) return std::to_string(threads) + " threads, " + current_isa() + ", " + train.precision + attention;
  const std::string precision = train.precision == "bf16"   ? "bf16 products and activations, fp32 weights and sums"
                                : train.precision == "tf32" ? "tf32 products, the rest fp32"
                                                            : "strict fp32";
  return backend->device->info().name + ", " + precision + attention;
}

class TrainingRun {
 public:
  TrainingRun(const TrainRequest& request, RunFolder& folder, TrainingTask& task)
      : request_(request),
        config_(request.config.train),
        folder_(folder),
        task_(task),
        trainer_(task.trainer()),
        steps_ahead_(task.store().device() ? 1 : 0),
        schedule_(schedule_of(config_)) {
    submitted_.reserve(steps_ahead_ + 1);
  }

  TrainOutcome run() {
    start();
    const double began = now();
    before_ = progress_.seconds;
    began_ = began;
    if (progress_.step > 0 && !progress_.evaluated) finish_step();  // stopped before the evaluation of its last step
    done_ = done_ || (config_.max_epochs > 0 && progress_.epoch >= config_.max_epochs) || out_of_patience();
    while (!stopped_ && progress_.step < config_.max_steps && !done_) {
      if (task_.chunk_steps() > 0)
        train_chunk();
      else
        train_step();
      if (stop_requested()) finish_submitted(0);
      if (submitted_.empty()) finish_step();
    }
    close();
    return {stopped_, progress_, now() - began, task_.forecast().peak()};
  }

 private:
  // Weights: from the checkpoint, from another run, or from the seed.
  void start() {
    task_.initialize();
    if (request_.resume && folder_.has_state()) {
      Metadata metadata;
      progress_ = load_training_state(folder_.state_path(), trainer_, &metadata);
      log_info("resuming at step " + std::to_string(progress_.step));
      if (metadata["isa"] != current_isa())
        log_warning("the run was trained with " + metadata["isa"] + " kernels, now " + current_isa() +
                    ": losses will differ in the last digits");
    } else if (!request_.init.empty()) {
      load_model(RunFolder(request_.init).model_path(), trainer_.layout(), trainer_.state("parameters"));
      trainer_.reset_ema();
    }
    // Written once the checkpoint was found to be whole: a refused run changes no file.
    task_.save_assets(folder_.path());
    write_file_atomically(folder_.config_path(), to_toml(request_.config, false));
    task_.seek(progress_.epoch, progress_.batch);
    reporter_.emplace(request_.config, folder_.metrics_path(), progress_);
    last_saved_ = progress_.step;
    // A run that is killed before its first checkpoint must still go on from the other run's weights.
    if (!request_.init.empty() && !folder_.has_state()) save();
  }

  // A step whose report was not read yet: a device does it while the host makes the next batch.
  struct Submitted {
    int64_t step;
    LoadedBatch batch;  // the last, of several micro-batches
    double rate, began;
    SubmittedStep report;
  };

  void train_step() {
    Submitted s{.step = progress_.step + static_cast<int64_t>(submitted_.size()) + 1, .began = now()};
    s.rate = learning_rate(schedule_, s.step);
    if (trainer_.accumulates()) {
      for (int64_t micro = 0; micro < config_.accumulate_steps; ++micro) {
        s.batch = task_.next_batch();
        trainer_.accumulate(s.batch.shape, s.step, micro);
        if (s.batch.last_of_epoch) break;  // a short last group is not mixed with the next epoch
      }
      s.report = trainer_.submit_apply(s.rate, s.step);
    } else {
      s.batch = task_.next_batch();
      s.report = trainer_.submit(s.batch.shape, s.rate, s.step);
    }
    submitted_.push_back(s);
    // What is due after a step needs all that came before it, and nothing that comes later.
    const bool due = s.step % config_.eval_every == 0 || s.step % config_.save_every == 0 ||
                     s.step == config_.max_steps || ends_training(s.batch);
    finish_submitted(due ? 0 : steps_ahead_);
  }

  void finish_submitted(size_t left) {
    while (submitted_.size() > left) {
      const Submitted s = submitted_.front();
      const StepReport report = trainer_.collect(s.report);
      if (!report.finite && submitted_.size() > 1) reload(s);
      submitted_.erase(submitted_.begin());
      count(s.batch);
      const double finished = now();
      finish(s.step, s.batch.shape, report, s.rate, finished - std::max(s.began, finished_));
      finished_ = finished;
    }
  }

  // Later batches have taken the place of this one, which is to be looked at.
  void reload(const Submitted& s) {
    task_.seek(s.batch.epoch, s.batch.index);
    task_.next_batch();
    trainer_.set_step(s.rate, s.step);
  }

  // As many steps as the task does at once, up to where something is due.
  void train_chunk() {
    const int64_t first = progress_.step + 1;
    const double began = now();
    std::vector<float> rates;
    for (int64_t step = first; step < first + task_.chunk_steps(); ++step) {
      rates.push_back(static_cast<float>(learning_rate(schedule_, step)));
      if (step % config_.eval_every == 0 || step % config_.save_every == 0 || step == config_.max_steps) break;
    }
    const std::vector<DoneStep> done = task_.train_chunk(rates, first);
    const double seconds = (now() - began) / static_cast<double>(done.size());
    for (size_t i = 0; i < done.size(); ++i) {
      count(done[i].batch);
      finish(first + static_cast<int64_t>(i), done[i].batch.shape, done[i].report,
             learning_rate(schedule_, first + static_cast<int64_t>(i)), seconds);
    }
  }

  void finish(int64_t step, int shape, const StepReport& report, double rate, double seconds) {
    if (!report.finite) stop_non_finite(shape, step, report);
    progress_.step = step;
    progress_.target_tokens += report.tokens;
    progress_.seconds = before_ + now() - began_;
    progress_.evaluated = !evaluation_due();
    reporter_->step(progress_, report, rate, seconds, now() - began_);
  }

  void count(const LoadedBatch& batch) {
    progress_.epoch = batch.last_of_epoch ? batch.epoch + 1 : batch.epoch;
    progress_.batch = batch.last_of_epoch ? 0 : batch.index + 1;
    if (ends_training(batch)) done_ = true;
  }

  bool ends_training(const LoadedBatch& batch) const {
    return config_.max_epochs > 0 && batch.last_of_epoch && batch.epoch + 1 >= config_.max_epochs;
  }

  [[noreturn]] void stop_non_finite(int shape, int64_t step, const StepReport& report) {
    reporter_->clear();
    const std::string what = std::isfinite(report.loss) ? "gradient" : "loss";
    const std::string where = trainer_.find_non_finite(shape);
    throw Error(ErrorKind::kNumeric, "the " + what + " is not finite at step " + std::to_string(step) + "; first at " +
                                         (!where.empty()           ? where
                                          : trainer_.accumulates() ? "an earlier micro-batch"
                                                                   : "a place that later steps have hidden") +
                                         ". The last checkpoint is as it was");
  }

  bool out_of_patience() const { return config_.patience > 0 && progress_.worse_since_best >= config_.patience; }

  bool evaluation_due() const {
    return progress_.step % config_.eval_every == 0 || progress_.step == config_.max_steps || done_;
  }

  // Evaluates and saves where they are due. A signal is answered between the two, so that a resumed run evaluates
  // first.
  void finish_step() {
    if (!progress_.evaluated && !stop_requested()) evaluate();
    if (stop_requested()) stopped_ = true;
    if (progress_.step % config_.save_every == 0 && !stopped_) save();
  }

  void evaluate() {
    const double began = now();
    const Evaluation result = task_.evaluate();
    progress_.evaluated = true;
    last_saved_ = -1;  // the result belongs into the training state
    progress_.seconds = before_ + now() - began_;
    const bool better = compare(result);
    reporter_->evaluation(progress_, result, learning_rate(schedule_, progress_.step), now() - began, better);
    if (better) save_best();
    if (out_of_patience()) {
      reporter_->message("no better evaluation in " + std::to_string(config_.patience) + ": stopping early");
      done_ = true;
    }
  }

  // Equal metrics are told apart by the loss: early BLEU is often 0.
  bool compare(const Evaluation& result) {
    const double metric = metric_of(config_, result);
    const bool better = progress_.best_step == 0 || metric > progress_.best_metric ||
                        (metric == progress_.best_metric && result.loss < progress_.best_loss);
    if (!better) {
      ++progress_.worse_since_best;
      return false;
    }
    progress_.best_step = progress_.step, progress_.best_metric = metric, progress_.best_loss = result.loss;
    progress_.worse_since_best = 0;
    return true;
  }

  void save_best() {
    trainer_.pull_states();
    save_model(folder_.model_path(), trainer_.layout(), trainer_.state(trainer_.evaluated_state()), metadata());
  }

  void save() {
    reporter_->sync();
    save_training_state(folder_.state_path(), trainer_, progress_, metadata());
    last_saved_ = progress_.step;
  }

  Metadata metadata() const {
    return {{"format", "linnet"},
            {"isa", current_isa()},
            {"trained_steps", std::to_string(progress_.step)},
            {"seed", std::to_string(config_.seed)}};
  }

  void close() {
    if (last_saved_ != progress_.step || !file_exists(folder_.state_path())) save();
    if (progress_.best_step == 0) save_best();  // stopped before the first evaluation: better than nothing to load
    reporter_->clear();
    if (stopped_)
      log_info("stopped at step " + std::to_string(progress_.step) + " and saved; --resume goes on from there");
  }

  const TrainRequest& request_;
  const TrainConfig& config_;
  RunFolder& folder_;
  TrainingTask& task_;
  Trainer& trainer_;
  const size_t steps_ahead_;  // that a device may be asked for before the report of an earlier one is read
  const Schedule schedule_;
  Progress progress_;
  std::vector<Submitted> submitted_;  // oldest first; at most steps_ahead_ of them between steps
  std::optional<RunReporter> reporter_;
  bool stopped_ = false, done_ = false;
  int64_t last_saved_ = 0;
  double before_ = 0, began_ = 0;  // seconds of training before this process; the clock when this one began
  double finished_ = 0;            // the clock when the last report was read
};

// Takes the folder: a new one, or one to resume whose configuration agrees. Returns where the task's assets come from.
std::string open_folder(const TrainRequest& request, RunFolder& folder) {
  if (folder.in_use()) {
    if (!request.resume)
      fail_user("run folder '" + folder.path() + "' exists already; --resume goes on with it, --run DIR names another");
    check_resumable(folder.load_config(), request.config, folder.path());
    folder.lock();
    if (folder.has_state()) return folder.path();
  } else {
    folder.lock();
  }
  if (request.init.empty()) return "";
  if (!(RunFolder(request.init).load_config().model == request.config.model))
    fail_user("--init: the model of run '" + request.init + "' is another one; it differs in its [model] section");
  return request.init;
}

void check_space(const RunFolder& folder, const Trainer& trainer) {
  const uint64_t need = checkpoint_bytes(trainer) + (1 << 20), free = free_disk_bytes(folder.path());
  if (need > free)
    fail_user("run folder '" + folder.path() + "' needs " + std::to_string(need / 1000000) +
              " MB for its checkpoints, and its disk has " + std::to_string(free / 1000000) + " MB free");
}

}  // namespace

TrainOutcome run_training(const TrainRequest& request, const std::function<void(TrainingTask&)>& afterwards) {
  catch_stop_signals();
  RunFolder folder(request.folder);
  open_backend(request.config.train.device);  // a device that is not there is told before any text is read
  const std::string assets = open_folder(request, folder);
  const std::unique_ptr<TrainingTask> task = make_training_task(request.config, assets);
  Trainer& trainer = task->trainer();
  check_space(folder, trainer);
  log_info(std::to_string(trainer.layout().parameter_count()) + " parameters, " + std::to_string(task->shape_count()) +
           " batch shapes, " + where_it_runs(request.config.train, trainer.options().threads) +
           "; memory at its peak:\n" + task->forecast().text());
  task->take_memory();
  const TrainOutcome outcome = TrainingRun(request, folder, *task).run();
  if (afterwards && !outcome.stopped) {
    load_model(folder.model_path(), trainer.layout(), trainer.state(trainer.evaluated_state()));
    trainer.push_states();
    afterwards(*task);
  }
  return outcome;
}

}  // namespace linnet
