// Training steps in a row from a source of batches, those that the host feeds and those that find their data on the
// device alike: steps are asked for with submit() and their reports read with collect(), in the same order.
#pragma once
#include "data/examples/batch.h"
#include "training/trainer/resident.h"
#include "training/trainer/sharded_step.h"

namespace linnet {

// A step whose report was read.
struct DoneStep {
  int64_t step;
  BatchPosition batch;  // the last one, of several micro-batches
  StepReport report;
  double rate, seconds;
};

class StepQueue {
 public:
  // `resident`: the trainer's steps over the source's device_data(), staged; null: batches come from the host.
  // `shards`: of a trainer with several data shards; null otherwise.
  StepQueue(Trainer& trainer, BatchSource& source, ResidentSteps* resident, const Store& store,
            ShardedStep* shards = nullptr);

  // How many steps one submit() takes at most.
  int64_t most_steps() const { return resident_ && !is_profiling() ? resident_->steps_per_chunk() : 1; }
  // How many steps may be waiting while the host goes on: a device does them meanwhile.
  size_t steps_ahead() const { return is_profiling() ? 0 : steps_ahead_; }
  size_t waiting() const { return waiting_.size(); }
  // Begins the steps from `first_step` on, one for each of `rates`, up to the end of an epoch at most. Returns the last
  // step's batch. May throw Stopped: nothing was begun then.
  BatchPosition submit(std::span<const double> rates, int64_t first_step);
  // The oldest step that waits. If its report is not finite, its inputs are in place again, for find_non_finite().
  DoneStep collect();

 private:
  struct Waiting {
    int64_t step;
    BatchPosition batch;
    double rate, began;
    SubmittedStep report;  // of a step that the host feeds
  };
  // Profiled steps are done one by one.
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
  std::vector<StepReport> reports_;  // of the device's chunk, from the first that was read on
  std::vector<int32_t> order_;       // of the chunk's rows
  double finished_ = 0;              // the clock when the last report was read
};

}  // namespace linnet
