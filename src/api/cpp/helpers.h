// Helpers for functions on tensors.
#pragma once
#include <atomic>
#include "base/process.h"
#include "engine/ir/op.h"
#include "linnet/arrays.h"

namespace linnet {
Tensor zeros(Tensor like, const Shape& shape);  // with the element type of `like`

std::string types_text(const InputTypes& types);  // "x f32[4, 2], y f32[4, 1]"
// Whether losses ignore the negative elements of an input of this name, so that -1 marks what does not count.
bool is_label(const std::string& name, DType dtype);

// An array's bytes. Throws Error(kUser), beginning with `what`, for a negative size or more than any memory.
size_t checked_bytes(const std::string& what, const TensorType& type);

// Marks an object as used during its lifetime, in which the thread computes with DefaultFloats. User error if it is in
// use already, by another thread or in a callback.
class Busy {
 public:
  Busy(std::atomic<bool>& flag, const char* what) : flag_(flag) {
    if (flag_.exchange(true)) fail_user(what, " is used twice at once: one thread at a time may use it");
  }
  ~Busy() { flag_ = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>& flag_;
  const DefaultFloats floats_;
};
}  // namespace linnet
