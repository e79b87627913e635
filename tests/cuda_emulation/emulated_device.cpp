#include "cuda_emulation/emulated_device.h"
#include <sys/mman.h>
#include <chrono>
#include <cstring>
#include "base/error.h"

namespace linnet {
namespace {
constexpr size_t kPage = 4096;
constexpr size_t kLimit = size_t{4} << 30;

QueueTask& queue_of_kernels() {
  static QueueTask queue = [](Device* device, std::function<void()> task) {
    static_cast<EmulatedDevice*>(device)->queue(std::move(task));
  };
  return queue;
}
}  // namespace

void set_queue_of_kernels(QueueTask queue) { queue_of_kernels() = queue; }
void queue_kernel(Device* device, std::function<void()> task) { queue_of_kernels()(device, std::move(task)); }

EmulatedDevice::EmulatedDevice() : info_{"emulated GPU", "threads of this processor", kLimit, kLimit} {}

EmulatedDevice::~EmulatedDevice() {
  for (const auto& [memory, block] : blocks_) munmap(memory, block.bytes);
}

std::byte* EmulatedDevice::allocate(size_t bytes, const std::string& what) {
  const size_t mapped = (bytes + kPage - 1) / kPage * kPage;
  void* memory = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail_errno("cannot allocate " + what);
  // NaN: what nothing wrote must not be read.
  mprotect(memory, mapped, PROT_READ | PROT_WRITE);
  std::memset(memory, 0xff, mapped);
  mprotect(memory, mapped, PROT_NONE);
  blocks_[static_cast<std::byte*>(memory)] = {mapped};
  ++allocations_;
  return static_cast<std::byte*>(memory);
}

void EmulatedDevice::release(std::byte* memory) noexcept {
  wait();
  munmap(memory, blocks_.at(memory).bytes);
  blocks_.erase(memory);
}

std::byte* EmulatedDevice::allocate_host(size_t bytes) {
  ++allocations_;
  return static_cast<std::byte*>(std::calloc(bytes, 1));
}

void EmulatedDevice::release_host(std::byte* memory) noexcept {
  wait();
  std::free(memory);
}

void EmulatedDevice::copy(std::byte* to, const std::byte* from, size_t bytes) {
  queue([=] { std::memmove(to, from, bytes); });
}

void EmulatedDevice::queue(std::function<void()> task) {
  if (is_aside_) return asides_.back().second.push_back(std::move(task));
  if (recording_) return recording_->tasks.push_back(std::move(task));
  waiting_.push_back(std::move(task));
  ++asked_;
}

void EmulatedDevice::protect(int protection) {
  for (const auto& [memory, block] : blocks_) mprotect(memory, block.bytes, protection);
}

void EmulatedDevice::wait() {
  if (recording_) fail_internal("waiting inside a recording");
  reached(asked_);
}

// Does nothing that was queued after the mark: who needs it has to say so.
void EmulatedDevice::reached(int64_t mark) {
  if (done_ >= mark) return;
  protect(PROT_READ | PROT_WRITE);
  try {
    while (done_ < mark) {
      const std::function<void()> task = std::move(waiting_.front());
      waiting_.pop_front();
      ++done_;
      task();
    }
  } catch (...) {
    protect(PROT_NONE);
    throw;
  }
  protect(PROT_NONE);
}

std::unique_ptr<Recording> EmulatedDevice::record(FunctionRef<void()> work) {
  begin_recording();
  try {
    work();
  } catch (...) {
    end_recording();
    throw;
  }
  return end_recording();
}
void EmulatedDevice::begin_recording() { recording_ = std::make_unique<TaskList>(); }
std::unique_ptr<Recording> EmulatedDevice::end_recording() { return std::move(recording_); }

void EmulatedDevice::replay(const Recording& recording) {
  for (const auto& task : static_cast<const TaskList&>(recording).tasks) {
    waiting_.push_back(task);
    ++asked_;
  }
}

// As late as it may be done: what does not wait for it although it must, or writes over its operands, shows.
void EmulatedDevice::aside(int64_t number, FunctionRef<void()> work) {
  asides_.push_back({number, {}});
  is_aside_ = true;
  work();
  is_aside_ = false;
}
void EmulatedDevice::after_aside(int64_t number) {
  while (!asides_.empty() && asides_.front().first <= number) {
    for (std::function<void()>& task : asides_.front().second) queue(std::move(task));
    asides_.pop_front();
  }
}

void EmulatedDevice::launched(FunctionRef<std::string()>) {}

double EmulatedDevice::timed(FunctionRef<void()> work) {
  wait();
  const auto start = std::chrono::steady_clock::now();
  work();
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
}  // namespace linnet
