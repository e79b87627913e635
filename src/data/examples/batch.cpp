#include "data/examples/batch.h"
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include "base/fail.h"
#include "base/log.h"
#include "base/timeline.h"
#include "data/examples/text/token_chunks.h"

namespace linnet {
template <class T> std::span<const T> Batch::values(const char* name) const {
  const auto* found = find_item(arrays, std::string_view(name), &BatchArray::name);
  if (!found) fail_internal("a batch without ", name);
  return {reinterpret_cast<const T*>(found->bytes.data()), found->bytes.size() / sizeof(T)};
}
template std::span<const int32_t> Batch::values(const char* name) const;
template std::span<const float> Batch::values(const char* name) const;

OwnedBatch::OwnedBatch(const std::vector<BatchInput>& inputs) {
  for (const BatchInput& input : inputs) batch.arrays.push_back({input.name, memory_.emplace_back(input.bytes)});
}

void OwnedBatch::resize(size_t input, int64_t count) {
  const auto bytes = static_cast<size_t>(4 * count);
  if (bytes > memory_[input].size()) fail_internal("a batch with too large an array ", batch.arrays[input].name);
  batch.arrays[input].bytes = std::span(memory_[input]).first(bytes);
}

BatchPosition BatchSource::next_rows(std::span<int32_t>) { fail_internal("these batches are no rows of device data"); }

void BatchCursor::take_share(BatchShare share) {
  if (share.count < 1 || share.first < 0 || share.index(share.count - 1) >= share.group)
    fail_internal("batches ", share.first, " to ", share.index(share.count - 1), " of a group of ", share.group);
  share_ = share;
  set(0, 0);
}

void BatchCursor::seek(int64_t epoch, int64_t index, int64_t batches) {
  BatchCursor sought = *this;
  sought.set(epoch, index);
  sought.check(batches);
  *this = sought;
}

void BatchCursor::check(int64_t batches) const {
  if (epoch_ < 0 || index_ < 0 || index_ >= batches)
    fail_user("batch ", index_, " of epoch ", epoch_, " does not exist: an epoch has ", batches,
        " batches; were the training data or the batch options changed?");
}

const Batch& SingleBatchSource::next() {
  const auto taken = cursor_.take([this](int64_t epoch) { return prepare(epoch); });
  static_cast<BatchPosition&>(owned_.batch) = taken.position;
  make(taken.epoch, taken.index);
  return owned_.batch;
}

BatchesAhead::BatchesAhead(int slots, int threads, Work work)
    : work_(std::move(work)), slots_(static_cast<size_t>(slots)),
      threads_(threads, [this](const std::stop_token& stop) { run(stop); }) {
  if (slots < 2 || threads < 1) fail_internal("batches ahead: at least two slots and one thread");
}

// The batch taken last is still in use.
bool BatchesAhead::has_room() const {
  return !plan_failed_ && planned_ - taken_ + (taken_ > 0 ? 1 : 0) < std::ssize(slots_);
}

// The oldest batch with a task that nobody has begun.
BatchesAhead::Slot* BatchesAhead::slot_with_work(int& index) {
  for (int64_t batch = taken_; batch < planned_; ++batch) {
    Slot& slot = slot_of(batch);
    index = static_cast<int>(&slot - slots_.data());
    if (slot.begun < slot.tasks) return &slot;
  }
  return nullptr;
}

void BatchesAhead::plan_next() {
  Slot& slot = slot_of(planned_);
  slot = {};
  try {
    slot.tasks = work_.plan(static_cast<int>(&slot - slots_.data()));
  } catch (...) {
    slot.failure = std::current_exception();
    plan_failed_ = true;
  }
  ++planned_;
  changed_.notify_all();
}

void BatchesAhead::run(const std::stop_token& stop) {
  Timeline::name_thread("batches");
  std::unique_lock lock(mutex_);
  const int thread = started_++;
  for (;;) {
    int index = 0;
    Slot* slot = nullptr;
    work_to_do_.wait(
        lock, stop, [&] { return !pausing_ && ((slot = slot_with_work(index)) != nullptr || has_room()); });
    if (stop.stop_requested()) return;
    if (!slot) {
      plan_next();
      work_to_do_.notify_all();
      continue;
    }
    const int64_t task = slot->begun++;
    ++working_;
    std::exception_ptr failure;
    lock.unlock();
    try {
      const HostSpan span("make batch");
      work_.make(index, task, thread);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --working_;
    if (failure && (!slot->failure || task < slot->failed_task)) slot->failure = failure, slot->failed_task = task;
    if (++slot->done == slot->tasks || (pausing_ && working_ == 0)) changed_.notify_all();
  }
}

int BatchesAhead::next() {
  std::unique_lock lock(mutex_);
  Slot& slot = slot_of(taken_);
  // This call's return frees the slot in use, so it may be planned anew once the wait is over.
  changed_.wait(lock, [&] { return planned_ > taken_ && slot.done == slot.tasks; });
  if (slot.failure) std::rethrow_exception(slot.failure);
  ++taken_;
  lock.unlock();
  work_to_do_.notify_all();
  return static_cast<int>(&slot - slots_.data());
}

void BatchesAhead::restart(const std::function<void()>& change) {
  std::unique_lock lock(mutex_);
  pausing_ = true;
  changed_.wait(lock, [&] { return working_ == 0; });
  planned_ = taken_ = 0;
  plan_failed_ = false;
  const auto go_on = [&] {
    pausing_ = false;
    lock.unlock();
    work_to_do_.notify_all();
  };
  try {
    change();
  } catch (...) {
    go_on();
    throw;
  }
  go_on();
}

std::vector<bool> choose_held_out(const std::vector<int32_t>& labels, double share, uint64_t seed) {
  std::vector<std::vector<size_t>> of_class;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<size_t>(labels[i]);
    if (label >= of_class.size()) of_class.resize(label + 1);
    of_class[label].push_back(i);
  }
  std::vector<bool> chosen(labels.size());
  for (size_t label = 0; label < of_class.size(); ++label) {
    const auto count = std::ssize(of_class[label]);
    if (count < 2) continue;
    const auto wanted = static_cast<int64_t>(std::llround(share * static_cast<double>(count)));
    const int64_t part = std::clamp<int64_t>(wanted, count >= 3 ? 1 : 0, count / 2);
    const ShuffledIndex shuffled(count, mix64(seed * 1000003 + label));
    for (int64_t i = 0; i < part; ++i) chosen[of_class[label][shuffled(i)]] = true;
  }
  return chosen;
}

void keep_together(std::vector<bool>& chosen, const std::vector<uint64_t>& keys) {
  const auto wanted = std::ranges::count(chosen, true);
  struct Group {
    size_t first;
    int64_t size = 0;
    bool is_chosen = false;
  };
  std::unordered_map<uint64_t, Group> groups;
  int64_t repeated = 0;
  for (size_t i = 0; i < keys.size(); ++i) repeated += groups.try_emplace(keys[i], Group{i}).first->second.size++ > 0;
  if (repeated == 0) return;
  int64_t left = wanted;
  for (const bool only_chosen : {true, false})
    for (size_t i = 0; i < keys.size(); ++i) {
      Group& group = groups.at(keys[i]);
      if (group.first != i || group.is_chosen || (only_chosen && !chosen[i]) || group.size > left) continue;
      group.is_chosen = true, left -= group.size;
    }
  const bool few = left == wanted;
  for (size_t i = 0; !few && i < keys.size(); ++i) chosen[i] = groups.at(keys[i]).is_chosen;
  log_info(std::to_string(repeated) + " of " + std::to_string(keys.size()) + " examples repeat an earlier one" +
           (few ? ", and too few differ: what is set aside is learned as well"
                : "; they stay with it when some are set aside"));
}
}  // namespace linnet
