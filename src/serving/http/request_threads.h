// Threads that read requests and hand them to models, beside the server's own thread, which must not wait. Clients take
// turns.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include "base/stopping_threads.h"
#include "serving/loaded/fair_queue.h"

namespace linnet {

class RequestThreads {
 public:
  // Its end does what is left first.
  explicit RequestThreads(int threads) : threads_(threads, [this](const std::stop_token& stop) { work(stop); }) {}

  void run(const std::string& client, std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push(client, std::move(job));
    }
    wake_.notify_one();
  }

 private:
  void work(const std::stop_token& stop) {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, stop, [&] { return !jobs_.empty(); })) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.end_turn(true);
      lock.unlock();
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any wake_;
  FairQueue<std::function<void()>> jobs_;
  StoppingThreads threads_;
};

}  // namespace linnet
