#include <sys/mman.h>
#include <cstring>
#include <map>
#include <mutex>
#include "base/error.h"
#include "base/numbers.h"
#include "base/process.h"
#include "base/timeline.h"
#include "engine/device/device.h"

namespace linnet {
namespace {
class CpuDevice final : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  bool is_host() const override { return true; }
  size_t footprint(size_t bytes) const override { return Buffer::mapped_bytes(bytes); }

  std::byte* allocate(size_t bytes, const std::string&) override {
    Buffer buffer(bytes);
    std::byte* memory = buffer.data();
    const std::lock_guard lock(mutex_);
    if (memory) blocks_[memory] = std::move(buffer);
    ++allocations_;
    return memory;
  }
  void release(std::byte* memory) noexcept override {
    const std::lock_guard lock(mutex_);
    blocks_.erase(memory);
  }
  void touch(std::byte* memory) override {
    const std::lock_guard lock(mutex_);
    if (const auto found = blocks_.find(memory); found != blocks_.end()) found->second.touch();
  }
  std::byte* allocate_host(size_t bytes) override { return allocate(bytes, ""); }
  void release_host(std::byte* memory) noexcept override { release(memory); }
  int64_t allocations() const override {
    const std::lock_guard lock(mutex_);
    return allocations_;
  }

  void upload(std::byte* to, const std::byte* from, size_t bytes) override { copy(to, from, bytes); }
  void download(std::byte* to, const std::byte* from, size_t bytes) override { copy(to, from, bytes); }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }
  void wait() override {}
  int64_t mark() override { return 0; }
  void reached(int64_t) override {}

  std::unique_ptr<Recording> record(FunctionRef<void()>) override { fail_internal("the CPU records nothing"); }
  void replay(const Recording&) override { fail_internal("the CPU records nothing"); }

  void launched(FunctionRef<std::string()>) override {}
  double timed(FunctionRef<void()> work) override {
    const double start = now();
    work();
    return now() - start;
  }
  double joules() override { return -1; }

 private:
  const DeviceInfo info_{.name = "the CPU", .detail = "cpu"};
  mutable std::mutex mutex_;
  std::map<std::byte*, Buffer> blocks_;
  int64_t allocations_ = 0;
};

// Every x86-64 processor since 2011 has SSE4.2, the least that kernels are compiled for (cmake/library.cmake).
void check_processor() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("sse4.2")) fail_user("this processor has no SSE4.2 instructions, which Linnet needs");
#endif
}

constexpr size_t kPage = 4096, kHugePage = 2 << 20;
}  // namespace

Device& cpu_device() {
  static const bool checked = (check_processor(), true);
  (void)checked;
  // Never destroyed: stores that live to the program's end give their memory back to it.
  static auto* const device = new CpuDevice;
  return *device;
}

size_t Buffer::mapped_bytes(size_t bytes) {
  return bytes ? round_up(bytes, bytes >= kHugePage ? kHugePage : kPage) : 0;
}

Buffer::Buffer(size_t bytes) : mapped_(mapped_bytes(bytes)) {
  if (!mapped_) return;
  // A huge page must start at a multiple of its size: maps one more, and unmaps what is before and after.
  const bool huge = mapped_ >= kHugePage;
  const size_t asked = huge ? mapped_ + kHugePage : mapped_;
  void* memory = mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail_errno("cannot allocate " + std::to_string(bytes >> 20) + " MiB" + memory_limit());
  auto* start = static_cast<std::byte*>(memory);
  if (huge) {
    auto* aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<size_t>(start), kHugePage));
    if (aligned > start) munmap(start, static_cast<size_t>(aligned - start));
    munmap(aligned + mapped_, static_cast<size_t>(start + asked - (aligned + mapped_)));
    start = aligned;
    madvise(start, mapped_, MADV_HUGEPAGE);  // doubles the bandwidth of two cores; a refusal is no error
  }
  data_ = start;
}

void Buffer::touch() const {
  for (size_t offset = 0; offset < mapped_; offset += kPage) {
    volatile std::byte* byte = data_ + offset;
    *byte = *byte;
  }
}

Buffer::~Buffer() {
  if (data_) munmap(data_, mapped_);
}
}  // namespace linnet
