#include "training/run/training_run.h"
#include <fmt/format.h>
#include "base/files.h"
#include "base/process.h"
#include "base/timeline.h"
#include "engine/exec/backend.h"
#include "engine/kernels/processor.h"
#include "engine/plan/store.h"
#include "engine/profile/step_profiler.h"
#include "training/run/run_checkpoints.h"
#include "training/run/run_record.h"
#include "training/run/run_reporter.h"
#include "training/run/run_setup.h"
#include "training/trainer/step_queue.h"

namespace linnet {
namespace {
class TrainingRun {
 public:
  TrainingRun(const TrainRequest& request, RunFolder& folder, TrainingTask& task)
      : request_(request), config_(request.config.train), folder_(folder), task_(task), trainer_(task.trainer()),
        world_(*request.world), groups_(world_, trainer_.options().tensor.ranks, trainer_.options().pipeline.ranks),
        evaluation_(groups_.data),
        joined_(trainer_.options().shards.shards > 1 ? join_devices(task.store().backend(), world_) : JoinedDevices{}),
        shards_(trainer_.options().shards.shards > 1
                    ? std::make_optional<ShardedStep>(trainer_, groups_.data,
                          trainer_.options().tensor.ranks > 1 ? &groups_.tensor : nullptr, joined_.ranks.get())
                    : std::nullopt),
        checkpoints_(request, folder, task, groups_),
        steps_(trainer_, task.batches(), task.resident(), task.store(), shards_ ? &*shards_ : nullptr),
        schedule_(schedule_of(request.config)), last_step_(last_step(config_, task.batches().batches_per_epoch())) {
    rates_.reserve(steps_.most_steps());
    trainer_.state().set_groups({&groups_.tensor, &groups_.pipeline});
  }
  ~TrainingRun() { trainer_.state().set_groups({}); }

  TrainOutcome run() {
    start();
    try {
      return train();
    } catch (const Error& error) {
      const int64_t saved = checkpoints_.last_saved();
      if (error.kind() != ErrorKind::kSystem || saved <= 0) throw;
      fail_system(fmt::format("{}; when that is mended, --resume goes on from step {}", error.what(), saved));
    }
  }

 private:
  TrainOutcome train() {
    before_ = progress_.seconds, began_ = now();
    if (progress_.step > 0 && !progress_.evaluated) finish_step();  // stopped before its last step's evaluation
    done_ = done_ || (config_.max_epochs > 0 && progress_.epoch >= config_.max_epochs) || out_of_patience() ||
            out_of_time();
    if (done_ && progress_.step < config_.max_steps && is_first_rank()) log_info(reason_of_end());
    while (!stopped_ && progress_.step < config_.max_steps && !done_) {
      train_some();
      if (must_stop() || done_) finish_submitted(0);
      if (must_stop() || steps_.waiting() == 0) finish_step();
    }
    if (reporter_ && !stopped_) {
      reporter_->warn_of_nothing_learned();
      if (progress_.step < config_.max_steps && out_of_time() && before_ < 60 * config_.max_minutes)
        log_info(fmt::format("max_minutes = {} ended the run after {} of {} steps; a larger one goes on with --resume",
            config_.max_minutes, progress_.step, config_.max_steps));
    }
    close();
    default_stop_signals();
    return {stopped_, progress_, now() - began_, task_.forecast().peak()};
  }

  std::string reason_of_end() const {
    if (out_of_time())
      return fmt::format(
          "the run has used its {} minutes already; --set max_minutes=N goes on to N", config_.max_minutes);
    if (out_of_patience())
      return fmt::format(
          "the run had ended early: {} evaluations were no better; --set patience=N goes on to N of them",
          progress_.worse_since_best);
    return fmt::format("the run has its {} epochs already; --epochs N goes on to N", config_.max_epochs);
  }

  bool is_first_rank() const { return world_.rank() == 0; }
  bool is_alone() const { return world_.size() == 1; }
  // Whether ranks share the layers of one model and so run every step and evaluation together.
  bool shares_layers() const { return trainer_.options().tensor.ranks > 1 || trainer_.pipeline(); }

  // Ranks agree to stop where they exchange messages anyway (ShardedStep::finish), and after evaluations.
  bool must_stop() const { return is_alone() ? stop_requested() || stop_is_asked_ : stop_is_agreed_; }
  void agree_on_stop(bool here) {
    if (!is_alone() && any_rank(world_, here)) stop_is_agreed_ = true;
  }

  void start() {
    progress_ = checkpoints_.load();
    // Not earlier: each rank draws a divided parameter as a whole, which needs memory.
    run_on_all(world_, [&] {
      task_.take_memory();
      check_lost_pages();
    });
    catch_stop_signals();
    task_.batches().seek(progress_.epoch, progress_.batch);
    if (is_first_rank()) begin_files();
    start_profile();
    // A run killed before its first checkpoint must resume from the other run's weights.
    if (!request_.init.empty() && any_rank(world_, is_first_rank() && !checkpoints_.has_state())) save();
  }

  // Called after the checkpoint was verified: a refused run changes no file.
  void begin_files() {
    task_.save_assets(folder_.path());
    write_file_atomically(folder_.config_path(), to_toml(request_.config, false));
    DataFingerprint::of(request_.config).save(folder_.path());
    write_memory_record(folder_.path(), task_);
    write_system_record(folder_.path(), request_.program,
        where_it_runs(config_, trainer_.options().threads, request_.config.process.ranks));
    reporter_.emplace(request_.config, folder_.metrics_path(), progress_);
    if (joined_.ranks && !is_alone()) log_info("gradients go from GPU to GPU by " + joined_.ranks->text());
    if (!joined_.reason.empty()) log_warning("gradients go through the host's memory: " + joined_.reason);
  }

  // Every rank profiles the steps that rank 0 profiles.
  void start_profile() {
    ProfileOptions options = request_.profile.is_on() ? request_.profile : profile_options_from_environment();
    std::array steps{options.skip_first, options.wait, options.warmup, options.active, options.repeat};
    if (!is_alone()) broadcast(world_, 0, std::as_writable_bytes(std::span(steps)));
    options = {steps[0], steps[1], steps[2], steps[3], steps[4], folder_.path() + "/profile"};
    if (!options.is_on()) return;
    trainer_.profile(options);
    const PipelineRank& pipeline = trainer_.options().pipeline;
    const bool has_stages = pipeline.ranks > 1;
    std::string name = fmt::format("rank {}", world_.rank());
    for (int chunk = 0; has_stages && chunk < pipeline.chunks; ++chunk)
      name += fmt::format("{} {}", chunk > 0 ? " and" : ", stage", pipeline.rank + chunk * pipeline.ranks);
    if (has_stages) name += fmt::format(" of {}", pipeline.stages());
    if (!is_alone())
      trainer_.profiler()->ranks = &rank_profiles_.emplace(RankProfiles::Rank{.world = &world_,
          .name = name,
          .stages = has_stages ? &groups_.pipeline : nullptr,
          .micro_batches = trainer_.options().accumulate_steps,
          .chunks = pipeline.chunks});
    trainer_.profiler()->on_summary = [this, folder = options.folder](const ProfileSummary& summary) {
      reporter_->message(summary_table(summary, 10) + (rank_profiles_ ? rank_profiles_->bubble().text() : "") +
                         fmt::format("written to {}/steps-{}-{}.pt.trace.json (for Perfetto) and .summary.json", folder,
                             summary.first_step, summary.last_step));
    };
  }

  // Runs one step, or as many as run without the host before something is due. A stop request abandons the current step
  // before its update; a resumed run repeats it.
  void train_some() {
    const int64_t first = progress_.step + static_cast<int64_t>(steps_.waiting()) + 1;
    rates_.clear();
    for (int64_t step = first; step < first + steps_.most_steps(); ++step) {
      rates_.push_back(rate(step));
      if (is_due(step)) break;
    }
    if (shares_layers()) agree_on_stop(stop_requested());
    try {
      // A rank that abandons a step alone would leave the others waiting for its gradient.
      std::optional<StopPoints> points;
      if (is_alone()) points.emplace(trainer_.pool());
      if (must_stop()) throw Stopped{};
      const BatchPosition batch = steps_.submit(rates_, first);
      // Work due after a step needs all earlier steps and no later one.
      const int64_t last = progress_.step + static_cast<int64_t>(steps_.waiting());
      finish_submitted(is_due(last) || ends_training(batch) ? 0 : steps_.steps_ahead());
    } catch (const Stopped&) {
      stopped_ = stop_is_agreed_ = true;
    }
  }

  bool is_due(int64_t step) const {
    return step % config_.eval_every == 0 || checkpoints_.is_due(step) || step == config_.max_steps;
  }

  void finish_submitted(size_t left) {
    while (steps_.waiting() > left) finish(steps_.collect());
  }

  void finish(const DoneStep& done) {
    progress_.epoch = done.batch.next_epoch, progress_.batch = done.batch.next_index;
    done_ |= ends_training(done.batch);
    if (!done.report.finite && !done.report.skipped)
      stop_non_finite(fmt::format("the {} is not finite at step {}",
                          std::isfinite(done.report.loss) ? "gradient" : "loss", done.step),
          done.batch.shape_index, done.step);
    progress_.step = done.step;
    progress_.target_tokens += done.report.tokens;
    count_time();
    done_ |= out_of_time();
    last_shape_ = done.batch.shape_index, last_tokens_ = done.report.tokens;
    progress_.evaluated = !evaluation_due();
    last_scale_ = done.report.loss_scale;
    std::optional<int64_t> skipped_steps;
    if (trainer_.options().loss_scale.is_on()) skipped_steps = trainer_.loss_scale().skipped_steps;
    if (reporter_)
      reporter_->step(progress_, done.report, done.rate, done.seconds, now() - began_, total_steps(), skipped_steps);
    tell({done.step, progress_.epoch, total_steps(), done.report.loss, done.rate, progress_.seconds});
  }

  void tell(const TrainEvent& event) {
    if (request_.on_event && !request_.on_event(event)) stop_is_asked_ = true;
  }

  // With max_minutes rank 0's time counts for all ranks.
  void count_time() {
    progress_.seconds = before_ + now() - began_;
    if (config_.max_minutes > 0 && !is_alone()) progress_.seconds = broadcast_value(world_, 0, progress_.seconds);
  }

  bool ends_training(const BatchPosition& batch) const {
    return config_.max_epochs > 0 && batch.next_epoch >= config_.max_epochs;
  }

  // Stops if an evaluation found the last step's weights to be non-finite.
  void stop_if_broken() {
    if (last_tokens_ == 0 || task_.resident() || !is_alone() || trainer_.find_non_finite(last_shape_).empty()) return;
    stop_non_finite("the weights are broken after step " + std::to_string(progress_.step), last_shape_, progress_.step);
  }

  [[noreturn]] void stop_non_finite(const std::string& what, int shape, int64_t step) {
    if (reporter_) reporter_->clear();
    std::string where;
    for (const std::string& found : gather_texts(world_, trainer_.find_non_finite(shape)))
      if (where.empty()) where = found;
    const bool keeps = request_.detect_anomaly && !where.empty();
    if (keeps && is_first_rank()) save_anomaly(folder_.path(), task_, trainer_, shape, step);
    throw AgreedError(ErrorKind::kNumeric,
        what + "; first at " +
            (!where.empty()                            ? where
                : trainer_.state().layout().division() ? "a place that is not looked for while ranks share the layers"
                : trainer_.options().accumulates()     ? "an earlier micro-batch"
                                                       : "a place that later steps have hidden") +
            "; a smaller --lr or clip_norm, or more warmup_steps, may help. The last checkpoint is as it was" +
            (keeps ? "; `linnet check " + folder_.path() + " --replay` shows the step again" : ""));
  }

  double rate(int64_t step) const {
    Schedule schedule = schedule_;
    schedule.max_steps = std::max(step, total_steps());
    return learning_rate(schedule, step);
  }

  // With max_minutes an estimate from the steps so far.
  int64_t total_steps() const {
    if (config_.max_minutes == 0 || progress_.step == 0) return last_step_;
    const double budget = 60 * config_.max_minutes, used = std::max(progress_.seconds, 1e-3);
    const double steps = static_cast<double>(progress_.step) * budget / used;
    return std::max(progress_.step, steps < static_cast<double>(last_step_) ? static_cast<int64_t>(steps) : last_step_);
  }

  bool out_of_time() const { return config_.max_minutes > 0 && progress_.seconds >= 60 * config_.max_minutes; }
  bool out_of_patience() const { return config_.patience > 0 && progress_.worse_since_best >= config_.patience; }

  bool evaluation_due() const {
    return progress_.step % config_.eval_every == 0 || progress_.step == config_.max_steps || done_;
  }

  // Evaluates and saves when due. A stop abandons the evaluation; a resumed run begins with it.
  void finish_step() {
    if (!progress_.evaluated && !must_stop()) {
      if (checkpoints_.last_saved() <= 0) save();  // no model without a training state: open_folder() takes it for lost
      evaluate();
    }
    agree_on_stop(stop_requested());
    if (must_stop()) stopped_ = true;
    if (checkpoints_.is_due(progress_.step) && !stopped_) save();
  }

  void evaluate() {
    const double began = now();
    if (shards_) shards_->share_average();
    if (reporter_) reporter_->clear();  // an evaluation has a line of its own
    const std::optional<Judged> judged = judge_unless_stopped();
    agree_on_stop(!judged);
    if (!judged || (!is_alone() && must_stop())) return;
    progress_.evaluated = true;
    unsaved_result_ = true;  // must be saved in the training state
    count_time();
    const bool better = compare(judged->best);
    if (EventLog* events = reporter_ ? reporter_->events() : nullptr) {
      trainer_.state().pull();
      events->write_histograms(progress_.step, trainer_.state().layout(), trainer_.state().flat(state::kParameters));
    }
    if (reporter_) reporter_->evaluation(progress_, *judged, rate(progress_.step), now() - began, better);
    tell({progress_.step, progress_.epoch, total_steps(), judged->best.loss, rate(progress_.step), progress_.seconds,
        &judged->best});
    if (better) {
      checkpoints_.save_best(progress_, judged->average ? trainer_.state().evaluated() : state::kParameters);
      if (judged->best.classes && is_first_rank())
        write_file_atomically(folder_.classes_path(), judged->best.classes->json().dump() + "\n");
    }
    done_ |= out_of_time() || out_of_patience();
    if (out_of_patience() && reporter_)
      reporter_->message(fmt::format("no better evaluation in {}: stopping early", config_.patience));
  }

  // Empty if a stop was requested on this rank.
  std::optional<Judged> judge_unless_stopped() {
    try {
      std::optional<StopPoints> points;
      if (!shares_layers()) points.emplace(trainer_.pool());
      // Evaluation overwrites the step's gradient.
      if (reporter_ && reporter_->events() && last_tokens_ > 0 && !task_.resident())
        reporter_->events()->count_gradient(trainer_, last_shape_, last_tokens_, last_scale_);
      return judge();
    } catch (const Stopped&) {
      return {};
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kUser) stop_if_broken();
      throw;
    }
  }

  // With a moving average also evaluates the weights: an average of few or bad steps can be worse.
  Judged judge() {
    task_.earlier_evaluations = (progress_.step - 1) / config_.eval_every;
    Judged judged{
        .average = trainer_.state().evaluated() == state::kAverage, .best = task_.evaluate(evaluation_), .other = {}};
    if (!judged.average) return judged;
    trainer_.state().exchange_average();
    try {
      judged.other = task_.evaluate(evaluation_);
    } catch (...) {
      trainer_.state().exchange_average();
      throw;
    }
    trainer_.state().exchange_average();
    if (is_better(*judged.other, metric_of(config_, judged.best), judged.best.loss)) {
      judged.average = false;
      std::swap(judged.best, *judged.other);
    }
    return judged;
  }

  // The loss breaks ties: early BLEU is often 0.
  bool is_better(const TaskEvaluation& result, double than_metric, double than_loss) const {
    const double metric = metric_of(config_, result);
    return metric > than_metric || (metric == than_metric && result.loss < than_loss);
  }

  bool compare(const TaskEvaluation& result) {
    const bool better = progress_.best_step == 0 || is_better(result, progress_.best_metric, progress_.best_loss);
    progress_.worse_since_best = better ? 0 : progress_.worse_since_best + 1;
    if (!better) return false;
    progress_.best_step = progress_.step, progress_.best_metric = metric_of(config_, result);
    progress_.best_loss = result.loss;
    return true;
  }

  void save() {
    if (shards_) shards_->share_average();
    if (reporter_) reporter_->sync();
    checkpoints_.save(progress_);
    unsaved_result_ = false;
  }

  void close() {
    const bool is_missing = is_first_rank() && !checkpoints_.has_state();
    if (any_rank(world_, unsaved_result_ || checkpoints_.last_saved() != progress_.step || is_missing)) save();
    // Stopped before the first evaluation: save some model.
    if (progress_.best_step == 0) checkpoints_.save_best(progress_, trainer_.state().evaluated());
    if (!is_first_rank()) return;
    reporter_->clear();
    log_info(stopped_ ? fmt::format("stopped at step {} and saved; --resume goes on from there", progress_.step)
                      : fmt::format("the run is in '{0}'; `linnet info '{0}'` says what became of it", folder_.path()));
  }

  const TrainRequest& request_;
  const TrainConfig& config_;
  RunFolder& folder_;
  TrainingTask& task_;
  Trainer& trainer_;
  Communicator& world_;
  RankGroups groups_;
  SharedWork evaluation_;
  const JoinedDevices joined_;  // GPUs of ranks that only share data
  std::optional<ShardedStep> shards_;
  RunCheckpoints checkpoints_;
  StepQueue steps_;
  std::vector<double> rates_;  // of the next steps
  const Schedule schedule_;
  const int64_t last_step_;  // by max_steps and max_epochs
  Progress progress_;
  std::optional<RunReporter> reporter_;
  std::optional<RankProfiles> rank_profiles_;
  int last_shape_ = 0;       // of this process's last step
  int64_t last_tokens_ = 0;  // its tokens; 0: none has run
  double last_scale_ = 1;    // its loss scale
  bool stopped_ = false, done_ = false;
  bool stop_is_agreed_ = false;    // by all ranks
  bool stop_is_asked_ = false;     // by TrainRequest::on_event
  bool unsaved_result_ = false;    // of an evaluation after the last saved training state
  double before_ = 0, began_ = 0;  // seconds of training before this process; its start time
};
}  // namespace

TrainOutcome run_training(
    const TrainRequest& given, MakeTask* make_task, const std::function<void(TrainingTask&)>& afterwards) {
  TrainRequest request = given;
  Communicator& world = *request.world;
  request.config = with_absolute_paths(request.config);
  request.config.process = {world.rank(), world.size()};
  announce_stop(world.rank() == 0 ? "linnet: stopped before training began; nothing has changed\n" : "");
  check_ranks_agree(world, request.program, request.config);
  RunFolder folder(request.folder);
  std::string assets;
  run_on_all(world, [&] {
    validate(request.config);                   // config.toml may be unable to hold the current folder's name
    open_backend(request.config.train.device);  // reports a missing device before any text is read
    if (world.rank() == 0) assets = open_folder(request, folder);
    if (world.rank() == 0) divide_into_shards(request.config);
  });
  request.config = share_config(world, request.config);
  force_isa(request.config.train.isa);
  const std::unique_ptr<TrainingTask> task = make_shared_task(
      world, assets, request.config, [&](const std::string& from) { return make_task(request.config, from); });
  check_tasks_agree(world, *task);
  Trainer& trainer = task->trainer();
  run_on_all(world, [&] {
    if (world.rank() == 0) check_space(folder, trainer.state());
  });
  const int shapes = task->batches().shape_count();
  log_info(fmt::format("{} parameters, {} batch {}, {}; memory {}at its peak:\n{}",
      trainer.state().layout().whole_parameter_count(), shapes, shapes == 1 ? "shape" : "shapes",
      where_it_runs(request.config.train, trainer.options().threads, world.size()), world.size() > 1 ? "of each " : "",
      forecast_of_all(world, *task)));
  if (const uint64_t most = peak_resident_bytes(); most > task->forecast().peak())
    log_info("up to here the process took ", most / 1000000, " MB at its peak, more than training will");
  if (const std::string again = trainer.plans().largest_fit().text(); !again.empty())
    log_info("to take less memory it " + again);
  if (request.config.train.micro_batches > 1)
    log_info(fmt::format("each batch is computed in {} micro-batches, whose sums are rounded in another order",
        request.config.train.micro_batches));
  const TrainOutcome outcome = TrainingRun(request, folder, *task).run();
  if (afterwards && !outcome.stopped) {
    load_run_weights(trainer.state(), folder);
    afterwards(*task);
  }
  return outcome;
}
}  // namespace linnet
