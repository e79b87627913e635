// What a kernel keeps in its workspace.
#pragma once
#include <cstddef>
#include <cstdint>
#include "base/numbers.h"

namespace linnet {

// One region after another, each at a multiple of 64 bytes. Without memory they count its size.
class Regions {
 public:
  explicit Regions(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    T* region = base_ ? reinterpret_cast<T*>(base_ + size_) : nullptr;
    size_ += round_up(static_cast<size_t>(count) * sizeof(T), size_t{64});
    return region;
  }
  size_t size() const { return size_; }

 private:
  std::byte* base_;
  size_t size_ = 0;
};

}  // namespace linnet
