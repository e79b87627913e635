// A pool of threads for kernels: fork and join in about a microsecond, no allocation, parked when idle.
//
// For deterministic results a kernel divides its work into tasks by shape alone, never by the number of threads, and
// each task writes its own part of the result.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>
#include "base/functions.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/process.h"

namespace linnet {
class ThreadPool {
 public:
  // `threads` counts the calling thread, so ThreadPool(1) starts none.
  explicit ThreadPool(int threads);
  ~ThreadPool();

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, worker) once for every task in [0, tasks) and returns when all are done; worker, in [0, size()),
  // selects scratch memory. Rethrows the first exception of a task. Must not be called from inside a task.
  void run(int64_t tasks, FunctionRef<void(int64_t task, int worker)> body);

  // Throws Stopped (base/process.h) if the pool has StopPoints and a stop is requested. run() calls it first.
  void stop_point() const;
  // Begins work that must not be abandoned (an update of weights): stop_point() does nothing until StopPoints end.
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
  ForkGuard guard_;  // in a child the pool starts new workers when it is used
  const FunctionRef<void(int64_t, int)>* body_ = nullptr;
  int64_t tasks_ = 0;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};  // counts calls of run(); wakes the workers
  // The low half counts active workers; kOpen says whether more may join. A worker that the system wakes late finds the
  // door closed, so the caller never waits for a thread that has done nothing.
  static constexpr uint32_t kOpen = 1u << 31;
  alignas(64) std::atomic<uint32_t> door_{0};
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  bool may_stop_ = false;  // the calling thread's alone
};

// body(begin, end) over ranges of `step` indices that cover [0, count) once.
template <class Body> void for_steps(ThreadPool& pool, int64_t count, int64_t step, const Body& body) {
  pool.run(ceil_div(count, step), [&](int64_t task, int) { body(task * step, std::min(count, (task + 1) * step)); });
}

// While one lives, a stop request ends the pool's work at its next kernel by Stopped. For work that may be abandoned at
// any kernel: an evaluation, or a training step before its optimizer.
class StopPoints {
 public:
  explicit StopPoints(ThreadPool& pool) : pool_(pool) { pool_.may_stop_ = true; }
  ~StopPoints() { pool_.may_stop_ = false; }
  StopPoints(const StopPoints&) = delete;

 private:
  ThreadPool& pool_;
};

// The number of threads this process may use, by affinity mask and cgroup CPU quota; at least 1.
int available_threads();
// `asked`, or with 0 or less available_threads().
inline int threads_or_all(int asked) { return asked > 0 ? asked : available_threads(); }

// Starts a thread with the default floating-point environment. If it is refused (`ulimit -u`, a container's process
// limit, too little address space), throws a system error of one line that names the limits.
std::thread start_thread(std::function<void()> work);

// Threads that work until they are told to stop.
// Must be the last member of the data that the threads use: its destructor stops and joins them.
class StoppingThreads {
 public:
  StoppingThreads(int count, const std::function<void(std::stop_token)>& work) : StoppingThreads() {
    for (int i = 0; i < count; ++i) threads_.push_back(start_thread([work, stop = stop_.get_token()] { work(stop); }));
  }
  ~StoppingThreads() {
    stop_.request_stop();
    for (std::thread& thread : threads_) thread.join();
  }
  StoppingThreads(const StoppingThreads&) = delete;
  StoppingThreads& operator=(const StoppingThreads&) = delete;

 private:
  StoppingThreads() = default;

  std::stop_source stop_;
  std::vector<std::thread> threads_;
};

// Reports a call that cannot tick, as Phase does, from a thread of its own.
class TimedPhase {
 public:
  explicit TimedPhase(std::string what, std::chrono::milliseconds elsewhere = Phase::kPatience)
      : phase_(std::move(what), elsewhere) {}

 private:
  Phase phase_;
  std::mutex mutex_;
  std::condition_variable_any ended_;
  StoppingThreads thread_{1, [this](const std::stop_token& stop) {
                            std::unique_lock lock(mutex_);
                            while (!ended_.wait_for(lock, stop, Phase::kRedraw, [&] { return stop.stop_requested(); }))
                              phase_.tick();
                          }};
};

// A thread that runs numbered tasks in order, each as soon as it is allowed.
class OrderedWorker {
 public:
  // `name`: of the thread in profiles. The destructor waits for a task that has begun; the others are not begun.
  OrderedWorker(std::string name, std::function<void(size_t task)> work)
      : name_(std::move(name)), work_(std::move(work)) {}

  // Allows tasks 0 to count - 1. The count only grows until finish().
  void allow(size_t count);
  // Waits for tasks 0 to count - 1, which must be allowed. Leaves a task's exception for finish().
  void wait(size_t count);
  // Waits for all allowed tasks and starts again at 0. Rethrows the first exception of a task; no task begins after it.
  void finish();

 private:
  void run(const std::stop_token& stop);

  const std::string name_;
  const std::function<void(size_t)> work_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  size_t allowed_ = 0, done_ = 0;
  std::exception_ptr problem_;
  StoppingThreads thread_{1, [this](const std::stop_token& stop) { run(stop); }};
};
}  // namespace linnet
