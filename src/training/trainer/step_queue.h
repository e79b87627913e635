// Runs training steps on host batches or a device-resident dataset: submit() requests them, collect() reports in order.
#pragma once
#include "data/examples/batch.h"
#include "training/trainer/resident.h"
#include "training/trainer/sharded_step.h"

namespace linnet {
struct DoneStep {
  int64_t step;
  BatchPosition batch;  // the last one of several micro-batches
  StepReport report;
  double rate, seconds;
};

class StepQueue {
 public:
  // `resident`: the trainer's steps over the source's device_data(), staged; null: batches come from the host.
  // `shards`: of a trainer with several data shards; null otherwise.
  StepQueue(Trainer& trainer, BatchSource& source, ResidentSteps* resident, const Store& store,
      ShardedStep* shards = nullptr);

  // The most steps that one submit() takes.
  int64_t most_steps() const { return resident_ && !is_profiling() ? resident_->steps_per_chunk() : 1; }
  // How many steps a device may have queued while the host goes on.
  size_t steps_ahead() const { return is_profiling() ? 0 : steps_ahead_; }
  size_t waiting() const { return waiting_.size(); }
  // Begins a step for each rate, up to the epoch's end; returns the last batch. May throw Stopped before any step.
  BatchPosition submit(std::span<const double> rates, int64_t first_step);
  // Waits for the oldest step. If its report is not finite, restores its inputs for find_non_finite().
  DoneStep collect();

 private:
  struct Waiting {
    int64_t step;
    BatchPosition batch;
    double rate, began;
    SubmittedStep report;  // of a step with host batches
  };
  // Profiled steps run one at a time.
  bool is_profiling() const { return trainer_.profiler() && !trainer_.profiler()->is_done(); }
  const Batch& next_batch();
  void submit_step(double rate, int64_t step);
  BatchPosition accumulate(int64_t step);
  BatchPosition accumulate_shards(int64_t step);
  void submit_chunk(std::span<const double> rates, int64_t first_step);
  void restore(const Waiting& step);

  Trainer& trainer_;
  BatchSource& source_;
  ResidentSteps* const resident_;
  ShardedStep* const shards_;
  const size_t steps_ahead_;
  std::vector<Waiting> waiting_;     // oldest first
  std::vector<StepReport> reports_;  // of the device's chunk, not yet collected
  std::vector<int32_t> order_;       // rows of the chunk
  double finished_ = 0;              // the time when the last report was read
};
}  // namespace linnet
