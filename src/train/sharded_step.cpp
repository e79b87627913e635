#include "train/sharded_step.h"

#include <algorithm>

#include "base/signals.h"
#include "base/timeline.h"
#include "comm/tensor_group.h"
#include "kernels/reduce/reduce.h"

namespace linnet {
namespace {

constexpr const char* kWaiting = "shards.waiting";
constexpr const char* kMessages = "shards.messages";

// The values of a node beside its gradient; buffers follow.
enum Few : size_t { kLoss, kTokens, kStops, kBuffers };

size_t few_count(const ParameterLayout& layout) {
  return kBuffers + static_cast<size_t>(layout.stored_count() - layout.buffer_offset());
}

std::span<float> floats(const Store& store, const char* name, size_t count) {
  return {store.has(name) ? store.as<float>(name) : nullptr, count};
}

// The nodes that wait while a rank computes the last of its shards.
std::vector<ShardNode> nodes_before_last(const ShardShare& share) {
  ShardStack stack;
  for (int64_t i = 0; i + 1 < share.count(); ++i) stack.push({share.first() + i, 1});
  return stack.nodes();
}

size_t message_count(const ParameterLayout& layout, const ShardShare& share) {
  return ShardSum::workspace_size(share, std::max(static_cast<size_t>(layout.trained_count()), few_count(layout)));
}

}  // namespace

void declare_shard_sums(Store& store, const ParameterLayout& layout, const ShardShare& share) {
  const auto declare = [&](const char* name, MemoryKind kind, size_t count) {
    if (count == 0) return;
    const size_t bytes = count * sizeof(float);
    store.bind(name, {store.add_region(name, kind, bytes), 0}, bytes);
  };
  declare(kWaiting, MemoryKind::kGradients, static_cast<size_t>(share.most_waiting() * layout.trained_count()));
  declare(kMessages, MemoryKind::kWorkspace, message_count(layout, share));
}

ShardedStep::ShardedStep(Trainer& trainer, Communicator& world, Communicator* tensor)
    : trainer_(trainer),
      world_(world),
      tensor_(tensor),
      store_(trainer.store()),
      share_(trainer.options().shards),
      gradient_(floats(store_, "gradient", static_cast<size_t>(trainer.layout().trained_count()))),
      buffers_(floats(store_, kBufferInput, few_count(trainer.layout()) - kBuffers)),
      sum_(world, share_, floats(store_, kMessages, message_count(trainer.layout(), share_))),
      few_(static_cast<size_t>(share_.most_waiting()) + 1, std::vector<float>(few_count(trainer.layout()))),
      buffers_before_(buffers_.size()),
      waiting_at_last_(static_cast<int64_t>(nodes_before_last(share_).size())) {
  nodes_.reserve(few_.size()), sent_nodes_.reserve(few_.size());
  if (world.size() == 1 || tensor || !store_.device().is_host()) return;
  additions_of_last_ = waiting_at_last_ + 1 - static_cast<int64_t>(share_.nodes_of(share_.rank).size());
  buckets_ = gradient_buckets(trainer.layout());
  sort_by_completion(buckets_, last_writers(trainer.train_executor(0).plan(), trainer.layout(), buckets_), world);
  sender_.emplace("gradients", [this](size_t bucket) { send(buckets_[bucket]); });
}

BatchShare ShardedStep::batches() const {
  const int64_t micros = trainer_.options().accumulate_steps;
  return {share_.first() * micros, share_.shards * micros, share_.count() * micros};
}

int64_t ShardedStep::first_micro(int64_t shard) const {
  return (share_.first() + shard) * trainer_.options().accumulate_steps;
}

const std::vector<NodeId>& ShardedStep::last_writers_of(int shape) {
  const auto index = static_cast<size_t>(shape);
  if (last_writers_.size() <= index) last_writers_.resize(index + 1);
  if (last_writers_[index].empty())
    last_writers_[index] = last_writers(trainer_.train_executor(shape).plan(), trainer_.layout(), buckets_);
  return last_writers_[index];
}

void ShardedStep::accumulate(int shape, int64_t step, int64_t micro) {
  const bool is_last = added_ + 1 == share_.count() && micro + 1 == trainer_.options().accumulate_steps;
  if (sender_ && is_last) return accumulate_and_send(shape, step, first_micro(added_) + micro);
  trainer_.accumulate(shape, step, first_micro(added_) + micro);
}

// All ranks send their buckets in one order, whatever the order in which this plan completes them.
void ShardedStep::accumulate_and_send(int shape, int64_t step, int64_t micro) {
  const std::vector<NodeId>& last = last_writers_of(shape);
  size_t complete = 0;
  trainer_.accumulate(shape, step, micro, [&](NodeId node) {
    const size_t before = complete;
    while (complete < last.size() && last[complete] <= node) ++complete;
    if (complete > before) sender_->allow(complete);
  });
  sender_->allow(buckets_.size());
}

// On the sender's thread: what add() and sum_range() do of the last shard, for a bucket of it.
void ShardedStep::send(const GradientBucket& bucket) {
  const HostSpan span("add ranks' gradients");
  const TrainedRange& range = trainer_.layout().ranges()[bucket.range];
  const auto of_range = [&](std::span<float> flat) {
    return flat.subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.count));
  };
  const Slice part{static_cast<size_t>(bucket.first), static_cast<size_t>(bucket.count)};
  const std::span<float> gradient = of_range(gradient_);
  auto waiting = static_cast<size_t>(waiting_at_last_);
  for (int64_t i = 0; i < additions_of_last_; ++i)
    add_values(own_thread_, gradient.data() + part.first, of_range(waiting_gradient(--waiting)).data() + part.first,
               part.count);
  sent_nodes_.clear();
  for (size_t i = 0; i < waiting; ++i) sent_nodes_.push_back(of_range(waiting_gradient(i)));
  sent_nodes_.push_back(gradient);
  sum_.reduce_scatter(sent_nodes_, part, own_thread_, Communicator::Wait::kPatiently);
  const Slice own = overlap(slice(gradient.size(), share_.rank, share_.ranks), part);
  if (waiting > 0) std::ranges::copy(sent_nodes_[0].subspan(own.first, own.count), gradient.data() + own.first);
}

std::span<float> ShardedStep::waiting_gradient(size_t index) const {
  return {store_.as<float>(kWaiting) + index * gradient_.size(), gradient_.size()};
}

void ShardedStep::begin() {
  added_ = 0;
  stack_.clear();
  if (buffers_.empty()) return;
  store_.pull(kBufferInput);
  std::ranges::copy(buffers_, buffers_before_.begin());
}

// What the next shard begins with.
void ShardedStep::reset_shard() {
  const float zero = 0;
  for (const char* name : {"loss_sum", "token_count"}) store_.fill(name, &zero, sizeof zero);
  if (buffers_.empty()) return;
  std::ranges::copy(buffers_before_, buffers_.begin());
  store_.push(kBufferInput);
}

void ShardedStep::add() {
  const HostSpan span("add shard");
  for (const char* name : {"gradient", "loss_sum", "token_count"}) store_.pull(name);
  if (!buffers_.empty()) store_.pull(kBufferInput);
  const bool sends = sender_ && added_ + 1 == share_.count();  // and adds, in send()
  size_t last = stack_.nodes().size();
  std::vector<float>& few = few_[last];
  few[kLoss] = *store_.as<float>("loss_sum"), few[kTokens] = *store_.as<float>("token_count");
  few[kStops] = !tensor_ && stop_requested() ? 1.0F : 0.0F;
  std::ranges::copy(buffers_, few.begin() + kBuffers);
  for (int64_t additions = stack_.push({share_.first() + added_, 1}); additions > 0; --additions, --last) {
    if (!sends) add_values(trainer_.pool(), gradient_.data(), waiting_gradient(last - 1).data(), gradient_.size());
    add_values(trainer_.pool(), few_[last - 1].data(), few_[last].data(), few_[last].size());
  }
  if (++added_ == share_.count()) return;
  move_values(trainer_.pool(), waiting_gradient(last), gradient_);
  store_.push("gradient");
  reset_shard();
}

// Of a range of the gradient: its sum over all ranks.
void ShardedStep::sum_range(const TrainedRange& range) {
  const auto part = [&](std::span<float> flat) {
    return flat.subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.count));
  };
  const std::span<float> gradient = part(gradient_);
  const size_t count = stack_.nodes().size();
  nodes_.clear();
  for (size_t i = 0; i + 1 < count; ++i) nodes_.push_back(part(waiting_gradient(i)));
  nodes_.push_back(gradient);
  sum_.reduce_scatter(nodes_, trainer_.pool());
  const Slice own = slice(gradient.size(), share_.rank, share_.ranks);
  if (count > 1) std::ranges::copy(nodes_[0].subspan(own.first, own.count), gradient.data() + own.first);
}

// The norm's square, as the op sum_of_squares computes it from whole gradients: each rank has the partial sums of its
// slices.
void ShardedStep::add_squares() {
  float total = 0;
  for (const TrainedRange& range : trainer_.layout().ranges()) {
    const auto count = static_cast<size_t>(range.count);
    const Slice own = slice(count, share_.rank, share_.ranks);
    squares_.resize((count + kSliceUnit - 1) / kSliceUnit);
    block_squares(static_cast<int64_t>(own.count), gradient_.data() + range.offset + own.first,
                  squares_.data() + own.first / kSliceUnit, trainer_.pool());
    all_gather_slice_blocks(world_, squares_, count);
    double sum = 0;
    for (const double block : squares_) sum += block;
    auto squares = static_cast<float>(sum);
    if (range.is_divided) {
      scratch_.resize(sum_scratch_size(1, tensor_->size()));
      sum_over_ranks(*tensor_, {&squares, 1}, scratch_, trainer_.pool());
    }
    total = &range == &trainer_.layout().ranges().front() ? squares : total + squares;
  }
  store_.fill("sum_of_squares", &total, sizeof total);
}

void ShardedStep::share_update() {
  if (!trainer_.divides_moments()) return;
  const HostSpan span("share update");
  share_slices("parameters");
}

void ShardedStep::share_average() {
  if (trainer_.divides_moments() && trainer_.has_average()) share_slices("ema");
}

void ShardedStep::share_slices(const char* state) {
  for (const TrainedRange& range : trainer_.layout().ranges())
    all_gather_slices(world_, {trainer_.state(state) + range.offset, static_cast<size_t>(range.count)});
}

void ShardedStep::finish() {
  const HostSpan span("add ranks");
  if (sender_) sender_->finish();
  const size_t count = stack_.nodes().size();
  nodes_.clear();
  for (size_t i = 0; i < count; ++i) nodes_.emplace_back(few_[i]);
  sum_.sum_everywhere(nodes_, trainer_.pool());
  if (few_[0][kStops] > 0) throw Stopped{};

  for (const TrainedRange& range : trainer_.layout().ranges()) {
    if (!sender_) sum_range(range);
    // Where each rank updates its slice alone, it needs no other.
    if (!trainer_.divides_moments())
      all_gather_slices(world_, gradient_.subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.count)));
  }
  if (trainer_.divides_moments()) add_squares();
  store_.push("gradient");
  store_.fill("loss_sum", &few_[0][kLoss], sizeof(float));
  store_.fill("token_count", &few_[0][kTokens], sizeof(float));
  if (buffers_.empty()) return;
  for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i] = few_[0][kBuffers + i] / static_cast<float>(share_.shards);
  store_.push(kBufferInput);
}

}  // namespace linnet
