// Divides a kernel's workspace.
#pragma once
#include <cstddef>
#include <cstdint>
#include "base/numbers.h"

namespace linnet {
// One region after another, each at a multiple of `alignment` bytes. Without memory they count its size.
class Regions {
 public:
  explicit Regions(std::byte* base, size_t alignment = 64) : base_(base), alignment_(alignment) {}
  template <class T> T* take(int64_t count) {
    T* region = base_ ? reinterpret_cast<T*>(base_ + size_) : nullptr;
    size_ += round_up(static_cast<size_t>(count) * sizeof(T), alignment_);
    return region;
  }
  size_t size() const { return size_; }
  std::byte* rest() const { return base_ + size_; }

 private:
  std::byte* base_;
  size_t alignment_, size_ = 0;
};
}  // namespace linnet
