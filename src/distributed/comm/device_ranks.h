// Ranks that train on a GPU each and exchange values between the GPUs' memories, past the host's. The CUDA module has
// them by NCCL (engine/exec/device_ranks.h). NCCL only moves bytes: what is added, and in which order, is decided in this
// folder, as on CPUs.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "distributed/comm/communicator.h"

namespace linnet {

class DeviceRanks {
 public:
  virtual ~DeviceRanks() = default;
  DeviceRanks() = default;
  DeviceRanks(const DeviceRanks&) = delete;
  DeviceRanks& operator=(const DeviceRanks&) = delete;

  // All addresses are of the device's memory. Nothing waits: everything is queued behind what the device was asked
  // before, and done in that order.

  // The ranks of the world from which this was made. All of them queue the same messages in the same order.
  virtual Communicator& messages() = 0;
  // all_gather_slices() of distributed/comm/communicator.h.
  virtual void all_gather_slices(std::span<float> all, const SliceBounds& bounds) = 0;
  // into[i] += from[i]; rounded as on CPUs.
  virtual void add(float* into, const float* from, size_t count) = 0;
  virtual void copy(float* into, const float* from, size_t count) = 0;
  virtual void clear(float* values, size_t count) = 0;

  // What moves the messages, as in "NCCL 2.27.3"; empty for one rank.
  virtual std::string text() const = 0;
};

struct JoinedDevices {
  std::unique_ptr<DeviceRanks> ranks;  // null: messages go through the host's memory,
  std::string reason;                  // because of this; the same on every rank
};

}  // namespace linnet
