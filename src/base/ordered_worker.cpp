#include "base/ordered_worker.h"
#include <utility>
#include "base/thread_pool.h"
#include "base/timeline.h"

namespace linnet {

OrderedWorker::OrderedWorker(std::string name, std::function<void(size_t task)> work)
    : name_(std::move(name)), work_(std::move(work)), thread_(start_thread([this] { run(); })) {}

OrderedWorker::~OrderedWorker() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
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

void OrderedWorker::run() {
  Timeline::name_thread(name_);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || (done_ < allowed_ && !problem_); });
    if (stops_) return;
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
