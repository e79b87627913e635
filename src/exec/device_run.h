// How a plan runs on a device: the batch is copied over, the kernels are queued - the first time one by one, which is
// when libraries choose and compile, from the second time on as one recording - and outputs come back when somebody
// asks.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace linnet {

class DeviceRun {
 public:
  // `outputs`: where they lie on the device.
  DeviceRun(const Plan& plan, const Store& store, const std::map<std::string, TensorView>& outputs);
  ~DeviceRun();
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  // Returns as soon as the work is queued; the host may then write the next batch.
  // `times`: how often `queue_kernels` queues the plan; there is a recording for each number, so let them be few. More
  // than once: the plan has no batch.
  void run(FunctionRef<void()> queue_kernels, int64_t times = 1);
  // Copies the batch over and leaves the rest to the caller.
  void push_batch();
  // Waits for the run, when its outputs were not read yet. Valid until the next run.
  const TensorView& output(const std::string& name);

 private:
  struct Range {
    const std::byte* host;
    std::byte* device;
    size_t bytes, staged;  // staged: offset within a slot
  };
  struct Output {
    TensorView on_device, on_host;
    bool fresh = false;
  };
  static constexpr int kSlots = 4;  // batches that the host may be ahead

  void find_batch(const Plan& plan, const Store& store);

  Device& device_;
  std::vector<Range> batch_;
  std::byte* staging_ = nullptr;  // kSlots of slot_bytes_
  size_t slot_bytes_ = 0;
  int slot_ = 0;
  std::map<std::string, Output> outputs_;
  std::byte* mirror_ = nullptr;  // of all outputs
  bool warm_ = false;
  std::map<int64_t, std::unique_ptr<Recording>> recordings_;  // by times
};

}  // namespace linnet
