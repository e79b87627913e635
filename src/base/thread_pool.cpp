#include "base/thread_pool.h"
#include <sched.h>
#include <sys/resource.h>
#include <chrono>
#include <cmath>
#include <system_error>
#include <utility>
#include "base/error.h"
#include "base/timeline.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace linnet {
namespace {
// Kernels of a step follow each other within microseconds. A product's last task takes some 30 us, and a woken thread
// would be too late for its share of the next one. A longer idle spell parks the thread, so that other processes get
// the CPU.
constexpr auto kSpin = std::chrono::microseconds(200);

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

template <class T> void wait_while_equal(std::atomic<T>& value, T old) {
  using Clock = std::chrono::steady_clock;
  for (const Clock::time_point end = Clock::now() + kSpin; Clock::now() < end;)
    for (int i = 0; i < 32; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      relax();
    }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

// Leaks threads of another process, which can be neither joined nor detached.
void forget(std::vector<std::thread>& workers) { new std::vector<std::thread>(std::exchange(workers, {})); }
}  // namespace

ThreadPool::ThreadPool(int threads) { start_workers(threads); }

ThreadPool::~ThreadPool() { guard_.is_child() ? forget(workers_) : end_workers(); }

void ThreadPool::start_workers(int threads) {
  try {
    for (int worker = 1; worker < threads; ++worker) workers_.push_back(start_thread([=, this] { work(worker); }));
  } catch (...) {
    end_workers();
    throw;
  }
}

void ThreadPool::end_workers() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& thread : workers_) thread.join();
}

void ThreadPool::stop_point() const {
  if (may_stop_ && stop_requested()) throw Stopped{};
}

void ThreadPool::run(int64_t tasks, FunctionRef<void(int64_t, int)> body) {
  if (tasks <= 0) return;
  stop_point();
  if (guard_.is_child()) {
    const int threads = size();
    forget(workers_);
    guard_ = ForkGuard();
    door_ = 0, generation_ = 0, error_ = nullptr;
    start_workers(threads);
  }
  if (workers_.empty() || tasks == 1) {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  body_ = &body;
  tasks_ = tasks;
  next_.store(0, std::memory_order_relaxed);
  door_.store(kOpen, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  drain(0);
  for (uint32_t inside = door_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen; inside != 0;
       inside = door_.load(std::memory_order_acquire))
    wait_while_equal(door_, inside);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool ThreadPool::enter() {
  uint32_t door = door_.load(std::memory_order_acquire);
  while (door & kOpen)
    if (door_.compare_exchange_weak(door, door + 1, std::memory_order_acq_rel)) return true;
  return false;
}

void ThreadPool::leave() {
  if (door_.fetch_sub(1, std::memory_order_acq_rel) == 1) door_.notify_one();  // closed, and the last one out
}

void ThreadPool::work(int worker) {
  Timeline::name_thread("worker " + std::to_string(worker));
  uint32_t seen = 0;
  while (true) {
    wait_while_equal(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_) return;
    if (!enter()) continue;
    const int64_t began = Timeline::is_active() ? Timeline::now() : 0;
    drain(worker);
    if (began != 0) Timeline::record_work(began);
    leave();
  }
}

void ThreadPool::drain(int worker) {
  while (true) {
    const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) return;
    try {
      (*body_)(task, worker);
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
      next_.store(tasks_, std::memory_order_relaxed);
    }
  }
}

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  if (count <= 0) count = static_cast<int>(std::thread::hardware_concurrency());
  const double quota = std::ceil(cgroup_processors());
  if (quota < count) count = static_cast<int>(quota);
  return std::max(count, 1);
}

std::thread start_thread(std::function<void()> work) {
  try {
    return std::thread([work = std::move(work)] { std::fesetenv(FE_DFL_ENV), work(); });
  } catch (const std::system_error& error) {
    struct rlimit limit {};
    const bool limited = ::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    const std::string most = std::to_string(limit.rlim_cur);
    fail_system("cannot start a thread: " + error.code().message() +
                (limited ? "; this user may have " + most + " processes and threads (ulimit -u)" : "") +
                memory_limit() + "; --threads 1 needs fewest");
  }
}

void OrderedWorker::allow(size_t count) {
  {
    const std::lock_guard lock(mutex_);
    allowed_ = count;
  }
  changed_.notify_all();
}

void OrderedWorker::wait(size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= count || problem_; });
}

void OrderedWorker::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ == allowed_ || problem_; });
  allowed_ = done_ = 0;
  if (problem_) std::rethrow_exception(std::exchange(problem_, nullptr));
}

void OrderedWorker::run(const std::stop_token& stop) {
  Timeline::name_thread(name_);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, stop, [&] { return done_ < allowed_ && !problem_; });
    if (stop.stop_requested()) return;
    const size_t task = done_;
    lock.unlock();
    std::exception_ptr problem;
    try {
      work_(task);
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    problem_ = problem;
    if (!problem) ++done_;
    changed_.notify_all();
  }
}
}  // namespace linnet
