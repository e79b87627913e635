// Objects of the library that one thread at a time may use say so when two do.
#pragma once
#include <atomic>
#include <string>

#include "base/error.h"

namespace linnet {

// Marks an object as used while it exists. User error when it is used already: by another thread, or from a function
// that it calls.
class Busy {
 public:
  Busy(std::atomic<bool>& flag, const char* what) : flag_(flag) {
    if (flag_.exchange(true)) fail_user(std::string(what) + " is used twice at once: one thread at a time may use it");
  }
  ~Busy() { flag_ = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace linnet
