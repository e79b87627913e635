#include "training/trainer/step_queue.h"
#include "base/error.h"
#include "base/timeline.h"

namespace linnet {
StepQueue::StepQueue(
    Trainer& trainer, BatchSource& source, ResidentSteps* resident, const Store& store, ShardedStep* shards)
    : trainer_(trainer), source_(source), resident_(resident), shards_(shards),
      steps_ahead_(resident || shards || store.device().is_host() ? 0 : 1) {
  if (shards) source.take_share(shards->batches());
  waiting_.reserve(std::max<size_t>(static_cast<size_t>(most_steps()), steps_ahead_ + 1));
}

BatchPosition StepQueue::submit(std::span<const double> rates, int64_t first_step) {
  if (resident_) submit_chunk(rates, first_step);
  else submit_step(rates[0], first_step);
  return waiting_.back().batch;
}

void StepQueue::submit_step(double rate, int64_t step) {
  if (trainer_.profiler()) trainer_.profiler()->begin_step(step);
  Waiting waiting{step, {}, rate, now(), {}};
  if (trainer_.options().accumulates()) {
    waiting.batch = shards_ ? accumulate_shards(step) : accumulate(step);
    waiting.report = trainer_.submit_apply(rate, step);
    if (shards_) shards_->share_update();
  } else {
    const Batch& batch = next_batch();
    waiting.batch = batch;
    waiting.report = trainer_.submit(batch.shape_index, rate, step);
  }
  waiting_.push_back(waiting);
}

// For one data shard, or the whole step.
BatchPosition StepQueue::accumulate(int64_t step) {
  BatchPosition position;
  for (int64_t micro = 0; micro < trainer_.options().accumulate_steps; ++micro) {
    if (!shards_) trainer_.pool().stop_point();
    const Batch& batch = next_batch();
    position = batch;
    if (shards_) shards_->accumulate(batch.shape_index, step, micro);
    else trainer_.accumulate(batch.shape_index, step, micro);
    if (!shards_ && batch.last_of_epoch) break;  // a short last group is not mixed with the next epoch
  }
  return position;
}

BatchPosition StepQueue::accumulate_shards(int64_t step) {
  BatchPosition position;
  shards_->begin();
  for (int64_t shard = 0; shard < trainer_.options().shards.count(); ++shard) {
    position = accumulate(step);
    shards_->add();
  }
  shards_->finish();
  return position;
}

const Batch& StepQueue::next_batch() {
  const Batch& batch = [&]() -> const Batch& {
    const HostSpan span("next batch");
    return source_.next();
  }();
  trainer_.load(batch);
  return batch;
}

void StepQueue::submit_chunk(std::span<const double> rates, int64_t first_step) {
  const double began = now();
  if (trainer_.profiler()) trainer_.profiler()->begin_step(first_step);
  const auto rows = static_cast<size_t>(resident_->rows());
  std::vector<Waiting> chunk;
  std::vector<float> chunk_rates;
  order_.clear();
  for (const double rate : rates) {
    if (!chunk.empty() && chunk.back().batch.last_of_epoch) break;
    order_.resize(order_.size() + rows);
    const BatchPosition batch = source_.next_rows(std::span(order_).last(rows));
    chunk_rates.push_back(static_cast<float>(rate));
    chunk.push_back({first_step + std::ssize(chunk), batch, static_cast<double>(chunk_rates.back()), began, {}});
  }
  resident_->begin_chunk(order_, chunk_rates, first_step);
  resident_->run(static_cast<int64_t>(chunk.size()));
  waiting_.insert(waiting_.end(), chunk.begin(), chunk.end());
  reports_.clear();
}

DoneStep StepQueue::collect() {
  if (waiting_.empty()) fail_internal("no step waits to be read");
  const Waiting waiting = waiting_.front();
  DoneStep done{waiting.step, waiting.batch, {}, waiting.rate, 0};
  if (resident_) {
    if (reports_.empty()) {
      reports_ = resident_->reports();
      finished_ = now();
      if (trainer_.profiler()) trainer_.profiler()->end_step();
    }
    done.report = reports_[reports_.size() - waiting_.size()];
    done.seconds = (finished_ - waiting.began) / static_cast<double>(reports_.size());
  } else {
    done.report = trainer_.collect(waiting.report);
    const double before = std::max(waiting.began, finished_);
    finished_ = now();
    done.seconds = finished_ - before;
  }
  if (!done.report.finite && (resident_ || waiting_.size() > 1)) restore(waiting);
  waiting_.erase(waiting_.begin());
  return done;
}

// Puts back the batch, which later ones have replaced or which was never on the host.
void StepQueue::restore(const Waiting& step) {
  source_.seek(step.batch.epoch, step.batch.index);
  trainer_.load(source_.next());
  trainer_.set_step(step.rate, step.step);
}
}  // namespace linnet
