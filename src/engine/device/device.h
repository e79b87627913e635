// Where plans run: memory, copies and a queue of work. A GPU has memory of its own and does what it is asked later, in
// the order it was asked; wait() waits for all of it. The CPU (engine/device/device.h) uses the host's memory and does
// it at once.
//
// GPUs come from a module that is loaded when one is asked for (engine/exec/backend.h); tests have one that keeps its
// "device memory" out of the host's reach (tests/cuda_emulation/emulated_device.h).
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include "base/function_ref.h"

namespace linnet {

struct DeviceInfo {
  std::string name;       // "NVIDIA H200"
  std::string detail;     // "cuda:0, compute capability 9.0, driver 13.0"
  size_t memory_bytes{};  // of the device
  size_t free_bytes{};    // when it was opened
};

// What a device was asked to do, kept so that it can be asked again in one call. The addresses are part of it.
class Recording {
 public:
  virtual ~Recording() = default;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // The host may read and write the device's memory, and work is done when the call that asks for it returns: nothing
  // needs to be copied, recorded or waited for.
  virtual bool is_host() const { return false; }

  // Aligned to 256 bytes; the host's is zeroed, a GPU's may hold anything. Error(kSystem) naming the size when that is
  // not to be had. `what` for messages.
  virtual std::byte* allocate(size_t bytes, const std::string& what) = 0;
  virtual void release(std::byte* memory) noexcept = 0;
  // Takes the memory of a block that allocate() may only have reserved, so that no page fault falls into a step.
  virtual void touch(std::byte*) {}
  // What a block of this many bytes takes of the device's memory.
  virtual size_t footprint(size_t bytes) const { return bytes; }
  // Host memory that copies run from and to without the processor's help.
  virtual std::byte* allocate_host(size_t bytes) = 0;
  virtual void release_host(std::byte* memory) noexcept = 0;
  // Blocks of either kind taken since the device was opened: what a guard compares (tests/integration).
  virtual int64_t allocations() const = 0;

  // Queued. The host's side must stay as it is until the copy is done.
  virtual void upload(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void download(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // Until everything queued is done. Error(kSystem) when something failed, with the op that was queued last.
  virtual void wait() = 0;

  // A place in the queue: reached(mark()) waits until everything queued before mark() is done, and perhaps for some of
  // what came after it, when it is long ago. reached(0) does not wait.
  virtual int64_t mark() = 0;
  virtual void reached(int64_t mark) = 0;

  // What is queued inside `work` is recorded instead of done.
  virtual std::unique_ptr<Recording> record(FunctionRef<void()> work) = 0;
  virtual void replay(const Recording& recording) = 0;
  // What `work` queues comes after what was queued before it, and may run beside what is queued after it, up to
  // after_aside() of its number. Numbers rise from 0 and begin anew when the last was waited for.
  virtual void aside(int64_t, FunctionRef<void()> work) { work(); }
  // What is queued from here on comes after the asides of this number and below.
  virtual void after_aside(int64_t) {}

  // After each kernel: an error of launching it is reported with where_text().
  virtual void launched(FunctionRef<std::string()> where_text) = 0;
  // Seconds from the first to the last thing that `work` queues; waits.
  virtual double timed(FunctionRef<void()> work) = 0;
  // Joules the device has used since some time in the past; below 0 when it does not say.
  virtual double joules() = 0;
};

// The CPU as a device: its memory is the host's, and what it is asked to do is done before the call returns.

// One for the whole program.
Device& cpu_device();

// Memory for tensors: page-aligned, backed by huge pages where the system has them. It is reserved first and touched
// once before use, so that what was planned is what the operating system counts and no page fault falls into a step.

class Buffer {
 public:
  Buffer() = default;
  // Zeroed. Takes address space only. Throws Error(kSystem) naming the size when that is not to be had.
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
  void touch() const;  // takes the memory, and leaves its values
  // What a buffer of this many bytes takes of the system's memory.
  static size_t mapped_bytes(size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t mapped_ = 0;
};

}  // namespace linnet
