// A batch: named arrays, which of a closed set of shapes they have, and its position in the sequence of all batches.
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
#include "base/hash.h"
#include "base/stopping_threads.h"

namespace linnet {

// Fisher-Yates.
template <class T>
void shuffle_span(std::span<T> items, uint64_t state) {
  for (size_t left = items.size(); left > 1; --left) std::swap(items[left - 1], items[uniform_below(left, state)]);
}

// What the order of an epoch's examples is drawn from.
inline uint64_t order_key(uint64_t seed, int64_t epoch) {
  return mix64(mix64(seed + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(epoch));
}

// An array of a batch and the graph input that it is for, which has the same name.
struct BatchArray {
  const char* name;
  std::span<const std::byte> bytes;
};

template <class T>
BatchArray batch_array(const char* name, const T* values, int64_t count) {
  return {name, std::as_bytes(std::span(values, static_cast<size_t>(count)))};
}

// Positions count the batches of an epoch. With several ranks (BatchShare) a position is that of the group
// of batches that the ranks take together: it is the same for all of them.
struct BatchPosition {
  int shape_index = 0;
  int64_t epoch = 0, index = 0;
  bool last_of_epoch = false;
  int64_t next_epoch = 0, next_index = 0;  // of the batch, or group, that follows
};

// The arrays are views: the source that made the batch says how long they are valid.
struct Batch : BatchPosition {
  std::vector<BatchArray> arrays;

  // The values of an array of int32; internal error when the batch has none of that name.
  std::span<const int32_t> ids(const char* name) const;
};

// A graph input that batches fill, and the most bytes that any shape of them takes.
struct BatchInput {
  const char* name;
  size_t bytes;
};
// Of so many numbers of 4 bytes.
inline BatchInput number_input(const char* name, int64_t count) { return {name, static_cast<size_t>(4 * count)}; }

// A batch with memory of its own for its arrays.
class OwnedBatch {
 public:
  explicit OwnedBatch(const std::vector<BatchInput>& inputs);
  OwnedBatch(OwnedBatch&&) = default;
  template <class T = int32_t>
  T* data(size_t input) {
    return reinterpret_cast<T*>(memory_[input].data());
  }
  // How many numbers of 4 bytes of an array the batch's shape takes; at first all of it.
  void resize(size_t input, int64_t count);

  Batch batch;

 private:
  std::vector<std::vector<std::byte>> memory_;
};

// The sizes of a batch of sentence pairs: rows and padded lengths.
struct BatchShape {
  int64_t batch, source_length, target_length;
  auto operator<=>(const BatchShape&) const = default;
};

// Training batches without end, in an order that is a pure function of (seed, epoch): what the training loop knows of
// the data. Any position can be sought, so that a run goes on where it was stopped.
//
// Several ranks divide one sequence: it is cut into groups of batches that follow each other, also across the end of an
// epoch, and each rank takes some of every group. All ranks make the same number of steps, and their shares together
// are the sequence.

// Of each group of `group` batches, those from `first` on, `count` of them. With `run`, only so many follow each other;
// the next run begins `stride` batches after the one before.
struct BatchShare {
  int64_t first = 0, group = 1, count = 1;
  int64_t run = 0, stride = 0;  // 0: one run

  // Of batch `taken` of the share, in the group.
  int64_t index(int64_t taken) const { return first + (run > 0 ? taken / run * stride + taken % run : taken); }
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Valid until the following next() or seek().
  virtual const Batch& next() = 0;
  // next() goes on at this position. User error, here or at that next(), when the epoch has no such batch: it comes
  // from a checkpoint made with other data.
  virtual void seek(int64_t epoch, int64_t index) = 0;
  // Takes this share alone from now on, from the first epoch's first batch.
  virtual void take_share(BatchShare share) = 0;
  virtual int64_t shape_count() const { return 1; }
  virtual int64_t batches_per_epoch() const { return 0; }  // of all ranks; 0: epochs differ

  // Where batches are rows of arrays that can lie on the device as a whole: these arrays, by the graph inputs they are
  // for. Empty: batches are made another way.
  virtual std::vector<BatchArray> device_data() const { return {}; }
  // The next batch as the numbers of its rows in device_data(), -1 past the last one.
  virtual BatchPosition next_rows(std::span<int32_t> rows);
};

// Where a source is in the sequence.
class BatchCursor {
 public:
  void take_share(BatchShare share);
  // User error when an epoch has not so many batches.
  void seek(int64_t epoch, int64_t index, int64_t batches);
  void check(int64_t batches) const;  // the same of the position it has
  void set(int64_t epoch, int64_t index) { epoch_ = epoch, index_ = index, taken_ = 0; }
  struct Taken {
    BatchPosition position;
    int64_t epoch, index;  // of this rank's own batch
  };
  // Takes the next batch. count_of(epoch): how many an epoch has; it is asked for the own batch's epoch last.
  template <class CountOf>
  Taken take(const CountOf& count_of) {
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

// A source that makes each batch when it is asked for, in the same memory.
class SingleBatchSource : public BatchSource {
 public:
  const Batch& next() override;
  void seek(int64_t epoch, int64_t index) override { cursor_.seek(epoch, index, prepare(epoch)); }
  void take_share(BatchShare share) override { cursor_.take_share(share); }

 protected:
  SingleBatchSource(const std::vector<BatchInput>& inputs, uint64_t seed) : owned_(inputs), seed_(seed) {}
  // How many batches an epoch has. Batches are made of the epoch that was prepared last.
  virtual int64_t prepare(int64_t) { return batches_per_epoch(); }
  // Makes a batch of an epoch in owned_, but for its position.
  virtual void make(int64_t epoch, int64_t index) = 0;

  OwnedBatch owned_;
  const uint64_t seed_;

 private:
  BatchCursor cursor_;
};

// Batches that several threads make before they are wanted, in a ring of slots whose memory is the caller's. A batch is
// planned in its place of the sequence and then made of tasks, which any thread may do: what a task writes must follow
// from the plan alone.
class BatchesAhead {
 public:
  struct Work {
    // Decides what the batch of a slot is; the number of its tasks. Called for one batch after the other.
    std::function<int64_t(int slot)> plan;
    // Does a task of the batch in a slot; `thread` is in [0, threads) and tells which scratch memory is free to use.
    std::function<void(int slot, int64_t task, int thread)> make;
  };
  // At least two slots: one is in use, the others are made ready. The threads begin at once.
  BatchesAhead(int slots, int threads, Work work);

  // Waits for the next batch and returns its slot, which is the caller's until the following next() or restart(). An
  // exception of its plan or of its first task that has one reappears here, until restart().
  int next();
  // Forgets what was made, calls `change` while no thread works, and begins again.
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

}  // namespace linnet
