// Where plans run: memory, copies and a queue of work. A GPU has its own memory and works later, in order; wait() waits
// for everything. The CPU uses the host's memory and works at once. GPUs come from a module that is loaded on request
// (engine/exec/backend.h); tests have one whose "device memory" the host cannot reach
// (tests/cuda_emulation/emulated_device.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "base/functions.h"

namespace linnet {
struct DeviceInfo {
  std::string name;       // "NVIDIA H200"
  std::string detail;     // "cuda:0, compute capability 9.0, driver 13.0"
  size_t memory_bytes{};  // of the device
  size_t free_bytes{};    // when it was opened
};

// What was decided while a device worked, for reports.
struct DeviceChoices {
  std::vector<int64_t> recordings;                // launches of each, in the order of recording
  std::map<std::string, std::string> algorithms;  // of NVIDIA's libraries, by what they compute
};

// Recorded work that can be replayed in one call. The addresses are part of it.
class Recording {
 public:
  virtual ~Recording() = default;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // Whether the host can access the device's memory and work is done when its call returns, so that nothing needs to be
  // copied, recorded or waited for.
  virtual bool is_host() const { return false; }

  // Aligned to 256 bytes; the host's memory is zeroed, a GPU's is not. Throws Error(kSystem) naming the size if it is
  // refused. `what` is for messages.
  virtual std::byte* allocate(size_t bytes, const std::string& what) = 0;
  virtual void release(std::byte* memory) noexcept = 0;
  // Touches the pages of a block that allocate() may only have reserved, so that no page fault occurs in a step.
  virtual void touch(std::byte*) {}
  // The device memory that a block of this many bytes takes.
  virtual size_t footprint(size_t bytes) const { return bytes; }
  virtual std::byte* allocate_host(size_t bytes) = 0;  // host memory for copies by DMA
  virtual void release_host(std::byte* memory) noexcept = 0;
  // Blocks of either kind allocated since the device was opened, for guards in tests (tests/integration).
  virtual int64_t allocations() const = 0;

  // Queued. The host's side must not change until the copy is done.
  virtual void upload(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void download(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // Waits until all queued work is done. Throws Error(kSystem) with the op queued last if something failed.
  virtual void wait() = 0;

  // A position in the queue: reached(mark()) waits for everything queued before mark(), and perhaps for later work if
  // that was long ago. reached(0) does not wait.
  virtual int64_t mark() = 0;
  virtual void reached(int64_t mark) = 0;

  // Records what `work` queues instead of running it.
  virtual std::unique_ptr<Recording> record(FunctionRef<void()> work) = 0;
  virtual void replay(const Recording& recording) = 0;
  // Queues `work` behind earlier work; it may run beside later work up to after_aside() of its number. Numbers rise
  // from 0 and restart when the last was waited for.
  virtual void aside(int64_t, FunctionRef<void()> work) { work(); }
  virtual void after_aside(int64_t) {}  // later work comes after the asides up to this number

  // Called after each kernel; reports a launch error with where_text().
  virtual void launched(FunctionRef<std::string()> where_text) = 0;
  // Seconds from the first to the last thing that `work` queues; waits.
  virtual double timed(FunctionRef<void()> work) = 0;
  virtual double joules() = 0;  // joules used since some past time; below 0 if unknown
  virtual DeviceChoices choices() const { return {}; }
};

Device& cpu_device();  // the one CPU device, which works before a call returns

// Page-aligned memory for tensors, of huge pages if possible. It is reserved first and touched once before use, so that
// the plan matches the operating system's count and no page fault occurs in a step.

class Buffer {
 public:
  Buffer() = default;
  // Zeroed; takes address space only. Throws Error(kSystem) naming the size if it is refused.
  explicit Buffer(size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), mapped_(std::exchange(other.mapped_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }

  std::byte* data() const { return data_; }
  void touch() const;                        // takes the memory, and leaves its values
  static size_t mapped_bytes(size_t bytes);  // system memory of a buffer

 private:
  std::byte* data_ = nullptr;
  size_t mapped_ = 0;
};
}  // namespace linnet
