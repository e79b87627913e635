// Memory for tensors: page-aligned, backed by huge pages where the system has them. It is reserved first and touched
// once before use, so that what was planned is what the operating system counts and no page fault falls into a step.
#pragma once
#include <cstddef>
#include <utility>

namespace linnet {

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
