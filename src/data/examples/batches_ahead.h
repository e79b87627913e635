// Batches that several threads make before they are wanted, in a ring of slots whose memory is the caller's. A batch is
// planned in its place of the sequence and then made of tasks, which any thread may do: what a task writes must follow
// from the plan alone.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace linnet {

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
  ~BatchesAhead();
  BatchesAhead(const BatchesAhead&) = delete;
  BatchesAhead& operator=(const BatchesAhead&) = delete;

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

  void end_threads();
  void run(int thread);
  Slot* slot_with_work(int& index);
  void plan_next();
  bool has_room() const;
  Slot& slot_of(int64_t batch) { return slots_[static_cast<size_t>(batch) % slots_.size()]; }

  const Work work_;
  std::mutex mutex_;
  std::condition_variable work_to_do_, changed_;
  std::vector<Slot> slots_;  // batch n since the last restart lies in slot n modulo their number
  int64_t planned_ = 0, taken_ = 0;
  int working_ = 0;  // threads that do a task
  bool pausing_ = false, stopping_ = false, plan_failed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace linnet
