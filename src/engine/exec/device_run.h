// How a plan runs on a device: the batch is copied over, the kernels are queued - the first time one by one, which is
// when libraries choose and compile, from the second time on as one recording. Small outputs (losses, counts, norms)
// follow it home by themselves and are kept for some runs, so that the host may read them late; a large one comes when
// somebody asks.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan/plan.h"

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
  // than once: the plan has no batch. Returns the run's number, from 1 on.
  // `replay`: false queues the kernels one by one, although there may be a recording.
  int64_t run(FunctionRef<void()> queue_kernels, int64_t times = 1, bool replay = true);
  // Copies the batch over and leaves the rest to the caller.
  void push_batch();
  // Waits for that run; 0: the last. A large output is that of the last run and valid until the next, a small one may
  // be asked for until kKept more runs were queued.
  const TensorView& output(const std::string& name, int64_t run = 0);
  static constexpr int64_t kKept = 4;

 private:
  struct Range {
    const std::byte* host;
    std::byte* device;
    size_t bytes, staged;  // staged: offset within a slot
  };
  struct Output {
    TensorView on_device;
    std::array<TensorView, kKept> on_host;  // by run; a large one has only the first
    bool is_small;
    bool fresh = false;  // of a large one
  };
  static constexpr size_t kSlots = 4;  // batches that the host may be ahead

  void find_batch(const Plan& plan, const Store& store);
  void find_outputs(const std::map<std::string, TensorView>& outputs);
  void pull_small_outputs();

  Device& device_;
  std::vector<Range> batch_;
  std::byte* staging_ = nullptr;  // kSlots of slot_bytes_
  size_t slot_bytes_ = 0, slot_ = 0;
  std::array<int64_t, kSlots> pushed_{};  // marks: the slot may be written again
  std::map<std::string, Output> outputs_;
  std::byte* mirror_ = nullptr;  // of all outputs
  int64_t runs_ = 0;
  std::array<int64_t, kKept> done_{};                         // marks, by run
  std::map<int64_t, std::unique_ptr<Recording>> recordings_;  // by times
};

}  // namespace linnet
