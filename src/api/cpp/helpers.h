// What functions on tensors share.
#pragma once
#include <atomic>
#include "base/fail.h"
#include "engine/ir/graph.h"
#include "engine/ir/tensor.h"
#include "linnet/tensor_type.h"

namespace linnet {

// The size of an axis; Error(kShape) naming the line and the function when x has none of that number.
int64_t checked_size(const At& x, int axis, const char* function);

// Throws Error(kShape) that names the line of the program and says the parts.
template <class... Parts>
[[noreturn]] void fail_shape(SourceLine where, const Parts&... parts) {
  throw Error(ErrorKind::kShape, text_of_parts(where, ": ", parts...));
}
template <class... Parts>
[[noreturn]] void fail_shape(const At& x, const Parts&... parts) {
  fail_shape(x.where, parts...);
}

// Of the element type of `like`, for layers that pad.
Tensor zeros(Tensor like, const Shape& shape);

// The number of bytes of an array that a program asks for. Throws Error(kUser), beginning with `what`, for a negative
// size and for more than any memory.
size_t checked_bytes(const std::string& what, const TensorType& type);

// Objects of the library that one thread at a time may use say so when two do.

// Marks an object as used while it exists. User error when it is used already: by another thread, or from a function
// that it calls.
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
};

}  // namespace linnet
