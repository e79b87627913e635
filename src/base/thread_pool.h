// A pool of threads for kernels: fork and join in about a microsecond, no allocation, parked when idle.
//
// Determinism is the caller's: a kernel cuts its work into tasks by shape alone, never by the number of threads, and
// each task writes its own part of the result. Which thread runs a task then cannot change a bit.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#include "base/function_ref.h"

namespace linnet {

class ThreadPool {
 public:
  // `threads` counts the calling thread, so ThreadPool(1) starts none.
  explicit ThreadPool(int threads);
  ~ThreadPool();

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, worker) once for every task in [0, tasks); worker is in [0, size()) and tells which scratch
  // memory is free to use. Returns when all are done. An exception in any task reappears here (the first one).
  // Must not be called from inside a task.
  void run(int64_t tasks, FunctionRef<void(int64_t task, int worker)> body);

  // Throws Stopped (base/signals.h) where StopPoints of the pool live and a stop is requested. run() begins with it.
  void stop_point() const;
  // Work that must not be abandoned from here on begins, an update of the weights: stop_point() does nothing until the
  // StopPoints are gone.
  void pass_last_stop_point() { may_stop_ = false; }

 private:
  friend class StopPoints;
  void start_workers(int threads);
  void end_workers();
  void work(int worker);
  bool enter();
  void leave();
  void drain(int worker);

  std::vector<std::thread> workers_;
  const FunctionRef<void(int64_t, int)>* body_ = nullptr;
  int64_t tasks_ = 0;
  alignas(64) std::atomic<int64_t> next_{0};
  // Wakes the workers: counts calls of run().
  alignas(64) std::atomic<uint32_t> generation_{0};
  // Who is in: the low half counts workers at work, kOpen says whether more may join. A worker that the system wakes
  // late finds the door closed, so a busy machine never makes the caller wait for a thread that has done nothing.
  static constexpr uint32_t kOpen = 1u << 31;
  alignas(64) std::atomic<uint32_t> door_{0};
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  bool may_stop_ = false;  // the calling thread's alone
};

// While one of these lives, work that the pool computes ends at its next kernel by Stopped when a stop is requested. It
// is for work that may be abandoned at any kernel: an evaluation, or a training step whose optimizer has not begun.
class StopPoints {
 public:
  explicit StopPoints(ThreadPool& pool) : pool_(pool) { pool_.may_stop_ = true; }
  ~StopPoints() { pool_.may_stop_ = false; }
  StopPoints(const StopPoints&) = delete;

 private:
  ThreadPool& pool_;
};

// How many threads this process may use: the affinity mask and the cgroup's CPU quota, at least 1.
int available_threads();

// A thread that does `work`. System error of one line, which names the limits that are set, when it is refused: by
// `ulimit -u`, a container's limit of processes, or too little address space.
std::thread start_thread(std::function<void()> work);

// A thread that does numbered tasks in their order, as soon as each may begin.

class OrderedWorker {
 public:
  // `name`: of the thread, in profiles.
  OrderedWorker(std::string name, std::function<void(size_t task)> work);
  ~OrderedWorker();  // waits for a task that has begun; the others are not begun

  // Tasks 0 to count - 1 may begin. Counts only grow until finish().
  void allow(size_t count);
  // Waits until tasks 0 to count - 1, which were allowed, are done. An exception of a task stays for finish().
  void wait(size_t count);
  // Waits until all that were allowed are done, and begins at 0 again. An exception of a task reappears here, the first
  // one; no task begins after it.
  void finish();

 private:
  void run();

  const std::string name_;
  const std::function<void(size_t)> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t allowed_ = 0, done_ = 0;
  bool stops_ = false;
  std::exception_ptr problem_;
  std::thread thread_;
};

}  // namespace linnet
