// A device made of host memory, for tests. It does what it was asked only when somebody waits, and its memory is closed
// to the host the rest of the time: code that reads a result too early, or touches device memory, shows.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <vector>
#include "engine/device/device.h"

namespace linnet {
// How an emulated kernel gets into the queue of its device, which is an EmulatedDevice unless somebody said otherwise.
using QueueTask = void (*)(Device*, std::function<void()>);
void set_queue_of_kernels(QueueTask queue);
void queue_kernel(Device* device, std::function<void()> task);

namespace emulation {
// Threads and blocks in the opposite order from now on: the results must not change.
void set_reversed(bool reversed);
}  // namespace emulation

class EmulatedDevice : public Device {
 public:
  EmulatedDevice();
  ~EmulatedDevice() override;
  const DeviceInfo& info() const override { return info_; }
  std::byte* allocate(size_t bytes, const std::string& what) override;
  void release(std::byte* memory) noexcept override;
  std::byte* allocate_host(size_t bytes) override;
  void release_host(std::byte* memory) noexcept override;
  int64_t allocations() const override { return allocations_; }
  void upload(std::byte* to, const std::byte* from, size_t bytes) override { copy(to, from, bytes); }
  void download(std::byte* to, const std::byte* from, size_t bytes) override { copy(to, from, bytes); }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void wait() override;
  int64_t mark() override { return asked_; }
  void reached(int64_t mark) override;
  std::unique_ptr<Recording> record(FunctionRef<void()> work) override;
  void begin_recording();
  std::unique_ptr<Recording> end_recording();
  void replay(const Recording& recording) override;
  void launched(FunctionRef<std::string()> where_text) override;
  double timed(FunctionRef<void()> work) override;
  double joules() override { return -1; }

  void queue(std::function<void()> task);
  void aside(int64_t number, FunctionRef<void()> work) override;
  void after_aside(int64_t number) override;

 private:
  struct TaskList : Recording {
    std::vector<std::function<void()>> tasks;
  };
  struct Block {
    size_t bytes;
  };
  void protect(int protection);

  DeviceInfo info_;
  std::map<std::byte*, Block> blocks_;
  std::deque<std::function<void()>> waiting_;
  std::deque<std::pair<int64_t, std::vector<std::function<void()>>>> asides_;  // by number, not yet queued
  bool is_aside_ = false;
  std::unique_ptr<TaskList> recording_;
  int64_t done_ = 0;  // tasks ever done, and
  int64_t asked_ = 0;
  int64_t allocations_ = 0;
};
}  // namespace linnet
