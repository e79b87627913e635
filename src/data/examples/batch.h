// A batch has named arrays, one of a closed set of shapes, and a position in the sequence of all batches.
#pragma once
#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>
#include "base/numbers.h"
#include "base/thread_pool.h"

namespace linnet {
// Fisher-Yates.
template <class T> void shuffle_span(std::span<T> items, uint64_t state) {
  for (size_t left = items.size(); left > 1; --left) std::swap(items[left - 1], items[uniform_below(left, state)]);
}

// The seed of the order of an epoch's examples.
inline uint64_t order_key(uint64_t seed, int64_t epoch) {
  return mix64(mix64(seed + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(epoch));
}

// An array of a batch and the graph input of the same name.
struct BatchArray {
  const char* name;
  std::span<const std::byte> bytes;
};

template <class T> BatchArray batch_array(const char* name, const T* values, int64_t count) {
  return {name, std::as_bytes(std::span(values, static_cast<size_t>(count)))};
}

// Positions count the batches of an epoch. With several ranks (BatchShare) a position is that of the group of batches
// they take together, the same for all.
struct BatchPosition {
  int shape_index = 0;
  int64_t epoch = 0, index = 0;
  bool last_of_epoch = false;
  int64_t next_epoch = 0, next_index = 0;  // of the batch, or group, that follows
};

// The arrays are views, valid as long as their source says.
struct Batch : BatchPosition {
  std::vector<BatchArray> arrays;

  // The values of an array; internal error if there is none of that name.
  std::span<const int32_t> ids(const char* name) const { return values<int32_t>(name); }
  std::span<const float> floats(const char* name) const { return values<float>(name); }

 private:
  template <class T> std::span<const T> values(const char* name) const;
};

// A graph input that batches fill, and its most bytes for any shape.
struct BatchInput {
  const char* name;
  size_t bytes;
};
// Of so many numbers of 4 bytes.
inline BatchInput number_input(const char* name, int64_t count) { return {name, static_cast<size_t>(4 * count)}; }

// A batch that owns its arrays.
class OwnedBatch {
 public:
  explicit OwnedBatch(const std::vector<BatchInput>& inputs);
  OwnedBatch(OwnedBatch&&) = default;
  template <class T = int32_t> T* data(size_t input) { return reinterpret_cast<T*>(memory_[input].data()); }
  // Sets the count of 4-byte numbers in an array; at first all of it.
  void resize(size_t input, int64_t count);

  Batch batch;

 private:
  std::vector<std::vector<std::byte>> memory_;
};

// Rows and padded lengths of a batch of sentence pairs.
struct BatchShape {
  int64_t batch, source_length, target_length;
  auto operator<=>(const BatchShape&) const = default;
};

// Endless training batches in an order that is a pure function of (seed, epoch). Any position can be sought, so that a
// run continues where it stopped. Several ranks divide one sequence: it is cut into groups of consecutive batches, also
// across the end of an epoch, and each rank takes some of every group. All ranks make the same number of steps, and
// their shares together are the sequence.

// `count` batches of each group of `group`, from `first` on. With `run`, only that many are consecutive; the next run
// begins `stride` batches after the previous one's start.
struct BatchShare {
  int64_t first = 0, group = 1, count = 1;
  int64_t run = 0, stride = 0;  // 0: one run

  // The index in the group of batch `taken` of the share.
  int64_t index(int64_t taken) const { return first + (run > 0 ? taken / run * stride + taken % run : taken); }
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  virtual const Batch& next() = 0;  // valid until the next next() or seek()
  // Continues at this position. User error, here or at the next next(), if the epoch has no such batch: the checkpoint
  // was made with other data.
  virtual void seek(int64_t epoch, int64_t index) = 0;
  // Takes only this share from now on, from the first epoch's first batch.
  virtual void take_share(BatchShare share) = 0;
  virtual int64_t shape_count() const { return 1; }
  virtual int64_t batches_per_epoch() const { return 0; }  // of all ranks; 0: epochs differ

  // If batches are rows of arrays that can lie on the device as a whole: these arrays, by graph input.
  virtual std::vector<BatchArray> device_data() const { return {}; }
  // The next batch as row numbers in device_data(). Past the last one rows come again: ~i is row i without a label.
  virtual BatchPosition next_rows(std::span<int32_t> rows);
};

// The position of a source in the sequence.
class BatchCursor {
 public:
  void take_share(BatchShare share);
  // User error if the epoch has too few batches.
  void seek(int64_t epoch, int64_t index, int64_t batches);
  void check(int64_t batches) const;  // the same of the position it has
  void set(int64_t epoch, int64_t index) { epoch_ = epoch, index_ = index, taken_ = 0; }
  struct Taken {
    BatchPosition position;
    int64_t epoch, index;  // of this rank's own batch
  };
  // Takes the next batch. count_of(epoch): the epoch's number of batches, last called for the batch's own epoch.
  template <class CountOf> Taken take(const CountOf& count_of) {
    Taken taken{{.epoch = epoch_, .index = index_}, epoch_, index_ + share_.index(taken_)};
    int64_t next_epoch = epoch_, next_index = index_ + share_.group;
    while (next_index > 0) {
      const int64_t count = count_of(next_epoch);
      if (next_index < count) break;
      next_index -= count, ++next_epoch;
    }
    taken.position.last_of_epoch = next_epoch > epoch_;
    taken.position.next_epoch = next_epoch, taken.position.next_index = next_index;
    if (++taken_ == share_.count) set(next_epoch, next_index);
    for (int64_t count = count_of(taken.epoch); taken.index >= count; count = count_of(++taken.epoch))
      taken.index -= count;
    return taken;
  }

 private:
  BatchShare share_;
  int64_t epoch_ = 0, index_ = 0;  // of the group that is taken from
  int64_t taken_ = 0;              // batches of it so far
};

// A source that makes each batch on request, in the same memory.
class SingleBatchSource : public BatchSource {
 public:
  const Batch& next() override;
  void seek(int64_t epoch, int64_t index) override { cursor_.seek(epoch, index, prepare(epoch)); }
  void take_share(BatchShare share) override { cursor_.take_share(share); }

 protected:
  SingleBatchSource(const std::vector<BatchInput>& inputs, uint64_t seed) : owned_(inputs), seed_(seed) {}
  // Returns an epoch's number of batches. Batches are made for the epoch that was prepared last.
  virtual int64_t prepare(int64_t) { return batches_per_epoch(); }
  virtual void make(int64_t epoch, int64_t index) = 0;  // fills owned_ except for its position

  OwnedBatch owned_;
  const uint64_t seed_;

 private:
  BatchCursor cursor_;
};

// Several threads make batches ahead of their use, in a ring of slots whose memory is the caller's. A batch is planned
// in order and then made by tasks on any thread: a task's output must depend on the plan alone.
class BatchesAhead {
 public:
  struct Work {
    // Plans the batch of a slot and returns its number of tasks. Called for one batch after the other.
    std::function<int64_t(int slot)> plan;
    // Runs a task of the batch in a slot; `thread`, in [0, threads), selects scratch memory.
    std::function<void(int slot, int64_t task, int thread)> make;
  };
  // Needs at least two slots: one is in use, the others are being made. The threads begin at once.
  BatchesAhead(int slots, int threads, Work work);

  // Waits for the next batch and returns its slot, which is the caller's until the next next() or restart(). Rethrows
  // the exception of its plan or first failed task, until restart().
  int next();
  // Discards what was made, calls `change` while no thread works, and begins again.
  void restart(const std::function<void()>& change);

 private:
  struct Slot {
    int64_t tasks = 0, begun = 0, done = 0;
    std::exception_ptr failure;
    int64_t failed_task = 0;
  };

  void run(const std::stop_token& stop);
  Slot* slot_with_work(int& index);
  void plan_next();
  bool has_room() const;
  Slot& slot_of(int64_t batch) { return slots_[static_cast<size_t>(batch) % slots_.size()]; }

  const Work work_;
  std::mutex mutex_;
  std::condition_variable_any work_to_do_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;  // batch n since the last restart lies in slot n modulo their number
  int64_t planned_ = 0, taken_ = 0;
  int started_ = 0, working_ = 0;  // threads; those that do a task
  bool pausing_ = false, plan_failed_ = false;
  StoppingThreads threads_;
};

// True for labelled examples to set aside for validation or a test: `share` of each class, chosen by `seed`, but at
// least one of a class of three or more, and at most half of a class. `labels`: the class of each example, from 0.
std::vector<bool> choose_held_out(const std::vector<int32_t>& labels, double share, uint64_t seed);

// Puts examples with equal keys (a hash of their text) on the side of the first of them, so that no validation example
// was trained on; others replace them. If too few examples differ, `chosen` stays as it is. Logs the count of repeats.
void keep_together(std::vector<bool>& chosen, const std::vector<uint64_t>& keys);
}  // namespace linnet
