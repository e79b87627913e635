#include "engine/device/buffer.h"

#include <sys/mman.h>

#include <string>

#include "base/error.h"
#include "base/process_memory.h"
#include "base/rounding.h"

namespace linnet {
namespace {

constexpr size_t kPage = 4096, kHugePage = 2 << 20;

}  // namespace

size_t Buffer::mapped_bytes(size_t bytes) {
  return bytes ? round_up(bytes, bytes >= kHugePage ? kHugePage : kPage) : 0;
}

Buffer::Buffer(size_t bytes) : mapped_(mapped_bytes(bytes)) {
  if (!mapped_) return;
  // A huge page must start at a multiple of its size: map one more, and give back what is before and after.
  const bool huge = mapped_ >= kHugePage;
  const size_t asked = huge ? mapped_ + kHugePage : mapped_;
  void* memory = mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail_system("cannot allocate " + std::to_string(bytes >> 20) + " MiB" + memory_limit());
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
