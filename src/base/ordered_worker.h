// A thread that does numbered tasks in their order, as soon as each may begin.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace linnet {

class OrderedWorker {
 public:
  // `name`: of the thread, in profiles.
  OrderedWorker(std::string name, std::function<void(size_t task)> work);
  ~OrderedWorker();  // waits for a task that has begun; the others are not begun
  OrderedWorker(const OrderedWorker&) = delete;
  OrderedWorker& operator=(const OrderedWorker&) = delete;

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
