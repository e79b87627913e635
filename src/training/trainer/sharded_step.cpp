#include "training/trainer/sharded_step.h"
#include "base/process.h"
#include "base/timeline.h"
#include "engine/plan/store.h"
#include "training/trainer/pipeline_stage.h"

namespace linnet {
namespace {
constexpr const char* kWaiting = "shards.waiting";
constexpr const char* kMessages = "shards.messages";

// Values of a node beside its gradient; buffers follow.
enum Few : size_t { kLoss, kTokens, kStops, kBuffers };

size_t few_count(const ParameterLayout& layout) {
  return kBuffers + static_cast<size_t>(layout.stored_count() - layout.buffer_offset());
}

std::span<float> floats(const Store& store, const char* name, size_t count, bool on_device = false) {
  if (!store.has(name)) return {static_cast<float*>(nullptr), count};
  if (!on_device) return {store.as<float>(name), count};
  const Location& at = store.find(name, count * sizeof(float));
  return {reinterpret_cast<float*>(store.location(at.region) + at.offset), count};
}

std::span<float> part_of(std::span<float> flat, const TrainedRange& range) {
  return flat.subspan(range.offset, static_cast<size_t>(range.count));
}

size_t message_count(const ParameterLayout& layout, const ShardShare& share, bool on_device) {
  return ShardSum::workspace_size(
      share, std::max(static_cast<size_t>(layout.trained_count()), few_count(layout)), on_device);
}
}  // namespace

void declare_shard_sums(
    Store& store, const ParameterLayout& layout, const ShardShare& share, const Ownership* divided) {
  const auto declare = [&](const char* name, MemoryKind kind, size_t count) {
    if (count > 0) store.declare(name, kind, count * sizeof(float));
  };
  if (divided) declare_gradient_slices(store, layout, share, *divided);
  else declare(kWaiting, MemoryKind::kGradients, static_cast<size_t>(share.most_waiting() * layout.trained_count()));
  declare(kMessages, MemoryKind::kWorkspace, message_count(layout, share, !store.device().is_host()));
}

ShardedStep::ShardedStep(Trainer& trainer, Communicator& world, Communicator* tensor, DeviceRanks* device)
    : trainer_(trainer), state_(trainer.state()), world_(world), tensor_(tensor), device_(device),
      shares_layers_(tensor || trainer.pipeline()), store_(state_.store()), share_(trainer.options().shards),
      gradient_(floats(store_, state::kGradient,
          state_.has_whole_gradient() ? static_cast<size_t>(state_.layout().trained_count()) : 0, device != nullptr)),
      buffers_(floats(store_, kBufferInput, few_count(state_.layout()) - kBuffers)),
      host_messages_(device || store_.device().is_host() ? 0 : message_count(state_.layout(), share_, false)),
      few_messages_(ShardSum::workspace_size(share_, few_count(state_.layout()))),
      sum_(
          device
              ? ShardSum(*device, share_, floats(store_, kMessages, message_count(state_.layout(), share_, true), true))
              : ShardSum(world, share_,
                    store_.device().is_host() ? floats(store_, kMessages, message_count(state_.layout(), share_, false))
                                              : std::span(host_messages_))),
      few_sum_(world, share_, few_messages_),
      few_(static_cast<size_t>(std::max(share_.most_waiting() + 1, share_.most_nodes_after_a_round())),
          std::vector<float>(few_count(state_.layout()))),
      buffers_before_(buffers_.size()), squares_(world),
      waiting_at_last_(std::ssize(nodes_of_shards(share_.first(), share_.count() - 1))) {
  nodes_.reserve(few_.size()), sent_nodes_.reserve(few_.size());
  if (state_.divides_gradients()) {
    slices_ = gradient_slices(store_, state_.layout(), share_, state_.ownership());
    few_of_round_.resize(few_[0].size());
  }
  if (world.size() == 1 || trainer.pipeline() || !store_.device().is_host()) return;
  if (state_.has_whole_gradient()) {
    additions_of_last_ = waiting_at_last_ + 1 - static_cast<int64_t>(share_.nodes_of(share_.rank).size());
    buckets_ = gradient_buckets(state_.layout());
    sort_by_completion(
        buckets_, last_writers(trainer.plans().train_executor(0).plan(), state_.layout(), buckets_), world);
  } else {
    buckets_ = trainer.plans().buckets();
  }
  if (!tensor)
    sender_.emplace("gradients", [this](size_t bucket) { send(bucket, own_thread_, Communicator::Wait::kPatiently); });
}

BatchShare ShardedStep::batches() const {
  const int64_t micros = trainer_.options().accumulate_steps;
  if (divides_gradients())
    return {share_.rank * micros, share_.shards * micros, share_.count() * micros, micros, share_.ranks * micros};
  return {share_.first() * micros, share_.shards * micros, share_.count() * micros};
}

// Micro-batches are numbered through all shards of a step, so that no two have the same dropout masks.
int64_t ShardedStep::first_micro(int64_t shard) const {
  const int64_t of_step = divides_gradients() ? shard * share_.ranks + share_.rank : share_.first() + shard;
  return of_step * trainer_.options().accumulate_steps;
}

void ShardedStep::accumulate(int shape, int64_t step, int64_t micro) {
  if (!state_.has_whole_gradient()) return accumulate_and_send_held(shape, step, first_micro(added_) + micro);
  const bool is_last =
      micro + 1 == trainer_.options().accumulate_steps && (divides_gradients() || added_ + 1 == share_.count());
  if (sender_ && is_last) return accumulate_and_send(shape, step, first_micro(added_) + micro);
  trainer_.accumulate(shape, step, first_micro(added_) + micro);
}

// All ranks send their buckets in one order, whatever the order in which this plan completes them.
void ShardedStep::accumulate_and_send(int shape, int64_t step, int64_t micro) {
  std::vector<NodeId>& last = last_writers_[shape];
  if (last.empty()) last = last_writers(trainer_.plans().train_executor(shape).plan(), state_.layout(), buckets_);
  size_t complete = 0;
  trainer_.accumulate(shape, step, micro, [&](NodeId node) {
    const size_t before = complete;
    while (complete < last.size() && last[complete] <= node) ++complete;
    if (complete > before) sender_->allow(complete);
  });
  sender_->allow(buckets_.size());
}

// Sends each bucket when it is complete, on the sender's thread if there is one; then its memory is reused.
void ShardedStep::accumulate_and_send_held(int shape, int64_t step, int64_t micro) {
  std::vector<HeldBucket>& held = held_[shape];
  if (held.empty()) held = held_buckets(trainer_.plans().train_executor(shape).plan());
  sent_ = &held;
  size_t complete = 0, released = 0;
  trainer_.accumulate(shape, step, micro, [&](NodeId node) {
    for (; complete < held.size() && held[complete].ready <= node; ++complete) {
      if (sender_) sender_->allow(complete + 1);
      else send(complete, trainer_.pool(), Communicator::Wait::kSoon);
    }
    for (; sender_ && released < held.size() && held[released].hold <= node; ++released) sender_->wait(released + 1);
  });
}

void ShardedStep::send(size_t index, ThreadPool& pool, Communicator::Wait wait) {
  const HostSpan span("add ranks' gradients");
  const GradientBucket& bucket = buckets_[index];
  const Slice part{static_cast<size_t>(bucket.first), static_cast<size_t>(bucket.count)};
  // What add() and finish() do for the last shard, for one of its buckets.
  if (!divides_gradients())
    return sum_part(bucket.range, part, additions_of_last_, static_cast<size_t>(waiting_at_last_), pool, wait);
  const auto offset = static_cast<size_t>(state_.layout().ranges()[bucket.range].offset) + part.first;
  float* values = gradient_.empty() ? (*sent_)[index].values(store_) : gradient_.data() + offset;
  sum_.add_round(
      added_, {values, part.count}, state_.ownership().bounds(bucket.range), part, slices_[bucket.range], pool, wait);
}

// Adds `additions` of the `waiting` gradients to the last one, for a part of a range, and sums the rest over the ranks
// into this rank's slice of the gradient. Runs on the sender's thread, if any.
void ShardedStep::sum_part(
    size_t index, Slice part, int64_t additions, size_t waiting, ThreadPool& pool, Communicator::Wait wait) {
  const TrainedRange& range = state_.layout().ranges()[index];
  const std::span<float> gradient = part_of(gradient_, range);
  for (; additions > 0; --additions)
    add_values(pool, gradient.data() + part.first, part_of(waiting_gradient(--waiting), range).data() + part.first,
        part.count);
  sent_nodes_.clear();
  for (size_t i = 0; i < waiting; ++i) sent_nodes_.push_back(part_of(waiting_gradient(i), range));
  sent_nodes_.push_back(gradient);
  const SliceBounds& bounds = state_.ownership().bounds(index);
  sum_.reduce_scatter(sent_nodes_, bounds, part, pool, wait);
  if (waiting == 0) return;
  const Slice own = overlap(slice(bounds, share_.rank), part);
  const std::span<const float> sum = sent_nodes_[0].subspan(own.first, own.count);
  if (device_) device_->copy(gradient.data() + own.first, sum.data(), sum.size());
  else std::ranges::copy(sum, gradient.data() + own.first);
}

std::span<float> ShardedStep::waiting_gradient(size_t index) const {
  return floats(store_, kWaiting, (index + 1) * gradient_.size(), device_ != nullptr).last(gradient_.size());
}

void ShardedStep::keep_for_sibling(std::span<float> into) {
  if (device_) {
    device_->copy(into.data(), gradient_.data(), gradient_.size());
    device_->clear(gradient_.data(), gradient_.size());
  } else {
    move_values(trainer_.pool(), into, gradient_);
    store_.push(state::kGradient);
  }
}

void ShardedStep::begin() {
  added_ = 0;
  stack_.clear();
  if (buffers_.empty()) return;
  store_.pull(kBufferInput);
  std::ranges::copy(buffers_, buffers_before_.begin());
}

// Restores the values that a shard begins with.
void ShardedStep::reset_shard() {
  set_totals(store_, 0, 0);
  if (buffers_.empty()) return;
  std::ranges::copy(buffers_before_, buffers_.begin());
  store_.push(kBufferInput);
}

void ShardedStep::read_few(std::vector<float>& few) const {
  few[kLoss] = *store_.as<float>(state::kLossSum), few[kTokens] = *store_.as<float>(state::kTokenCount);
  few[kStops] = !shares_layers_ && stop_requested() ? 1.0F : 0.0F;
  std::ranges::copy(buffers_, few.begin() + kBuffers);
}

// Divided gradients: sends what accumulate() has not sent, and the few values.
void ShardedStep::add_round() {
  if (sender_) sender_->finish();
  else if (state_.has_whole_gradient())
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket)
      send(bucket, trainer_.pool(), Communicator::Wait::kSoon);
  fill_values(trainer_.pool(), gradient_, 0);
  read_few(few_of_round_);
  nodes_.assign(few_.begin(), few_.end());
  few_sum_.add_round_everywhere(added_, few_of_round_, nodes_, trainer_.pool());
  if (++added_ < share_.count()) reset_shard();
}

void ShardedStep::add() {
  const HostSpan span("add shard", SpanKind::kSharing);
  if (divides_gradients()) return add_round();
  trainer_.finish_accumulation();
  for (const char* name : {state::kLossSum, state::kTokenCount}) store_.pull(name);
  if (!device_) store_.pull(state::kGradient);
  if (!buffers_.empty()) store_.pull(kBufferInput);
  const bool sends = sender_ && added_ + 1 == share_.count();  // and adds, in send()
  size_t last = stack_.nodes().size();
  read_few(few_[last]);
  for (int64_t additions = stack_.push({share_.first() + added_, 1}); additions > 0; --additions, --last) {
    if (!sends)
      add_values(device_, trainer_.pool(), gradient_.data(), waiting_gradient(last - 1).data(), gradient_.size());
    add_values(trainer_.pool(), few_[last - 1].data(), few_[last].data(), few_[last].size());
  }
  if (++added_ == share_.count()) return;
  keep_for_sibling(waiting_gradient(last));
  reset_shard();
}

std::span<const float> ShardedStep::own_gradient(size_t range) const {
  if (divides_gradients()) return slices_[range][0];
  const Slice own = slice(state_.ownership().bounds(range), share_.rank);
  return gradient_.subspan(static_cast<size_t>(state_.layout().ranges()[range].offset) + own.first, own.count);
}

// The squared norm, bit for bit as the op sum_of_squares computes it from whole gradients.
void ShardedStep::add_squares() {
  float total = 0;
  for (size_t i = 0; i < state_.layout().ranges().size(); ++i) {
    const TrainedRange& range = state_.layout().ranges()[i];
    if (is_copy(state_.layout(), range)) continue;
    const float squares = squares_.sum(own_gradient(i), state_.ownership().bounds(i), trainer_.pool());
    total += range.is_divided ? sum_over_ranks(*tensor_, squares, scratch_, trainer_.pool()) : squares;
  }
  if (PipelineStage* pipeline = trainer_.pipeline()) total = pipeline->sum_over_stages(total, trainer_.pool());
  store_.fill(state::kSumOfSquares, &total, sizeof total);
}

void ShardedStep::share_update() {
  if (!state_.divides_moments()) return;
  const HostSpan span("share update", SpanKind::kSharing);
  share_slices(state::kParameters);
}

void ShardedStep::share_average() {
  if (state_.divides_moments() && state_.evaluated() == state::kAverage) share_slices(state::kAverage);
}

void ShardedStep::share_slices(const char* state) {
  for (size_t i = 0; i < state_.layout().ranges().size(); ++i) {
    const TrainedRange& range = state_.layout().ranges()[i];
    all_gather_slices(
        world_, {state_.flat(state) + range.offset, static_cast<size_t>(range.count)}, state_.ownership().bounds(i));
  }
}

void ShardedStep::finish() {
  const HostSpan span("add ranks", SpanKind::kSharing);
  if (!divides_gradients()) {
    if (sender_) sender_->finish();
    const size_t count = stack_.nodes().size();
    nodes_.assign(few_.begin(), few_.begin() + count);
    few_sum_.sum_everywhere(nodes_, trainer_.pool());
  }
  if (few_[0][kStops] > 0) throw Stopped{};
  for (size_t i = 0; !divides_gradients() && i < state_.layout().ranges().size(); ++i) {
    const Slice all{0, static_cast<size_t>(state_.layout().ranges()[i].count)};
    if (!sender_) sum_part(i, all, 0, stack_.nodes().size() - 1, trainer_.pool(), Communicator::Wait::kSoon);
    // Each rank updates its slice alone and needs no other.
    if (state_.divides_moments()) continue;
    const std::span<float> sum = part_of(gradient_, state_.layout().ranges()[i]);
    if (device_) device_->all_gather_slices(sum, state_.ownership().bounds(i));
    else all_gather_slices(world_, sum, state_.ownership().bounds(i));
  }
  if (state_.divides_moments() || trainer_.pipeline()) add_squares();
  if (!divides_gradients() && !device_) store_.push(state::kGradient);
  set_totals(store_, few_[0][kLoss], few_[0][kTokens]);
  if (buffers_.empty()) return;
  for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i] = few_[0][kBuffers + i] / static_cast<float>(share_.shards);
  store_.push(kBufferInput);
}
}  // namespace linnet
