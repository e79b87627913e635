// Threads that work until they are told to stop.
#pragma once
#include <functional>
#include <stop_token>
#include <thread>
#include <vector>
#include "base/thread_pool.h"

namespace linnet {
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
}  // namespace linnet
