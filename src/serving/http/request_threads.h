// Threads that read requests and hand them to models, beside the server's own thread, which must not wait. Clients take
// turns.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#include "base/thread_pool.h"
#include "serving/loaded/fair_queue.h"

namespace linnet {

class RequestThreads {
 public:
  explicit RequestThreads(int threads) {
    try {
      for (int i = 0; i < threads; ++i) threads_.push_back(start_thread([this] { work(); }));
    } catch (...) {
      end();
      throw;
    }
  }
  // Does what is left first.
  ~RequestThreads() { end(); }
  RequestThreads(const RequestThreads&) = delete;
  RequestThreads& operator=(const RequestThreads&) = delete;

  void run(const std::string& client, std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push(client, std::move(job));
    }
    wake_.notify_one();
  }

 private:
  void end() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return !jobs_.empty() || stop_; });
      if (jobs_.empty()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.end_turn(true);
      lock.unlock();
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  FairQueue<std::function<void()>> jobs_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace linnet
