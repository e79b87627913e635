// Memory for tensors: page-aligned, backed by huge pages where the system has them, and touched once, so that what was
// planned is what the operating system counts and no page fault falls into a training step.
#pragma once
#include <cstddef>
#include <utility>

namespace linnet {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);  // zeroed. Throws Error(kSystem) naming the size when memory is not to be had.
  ~Buffer();
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), mapped_(std::exchange(other.mapped_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }

  std::byte* data() const { return data_; }
  // What a buffer of this many bytes takes of the system's memory.
  static size_t mapped_bytes(size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t mapped_ = 0;
};

}  // namespace linnet
