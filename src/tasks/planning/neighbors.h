// Processes that work beside this one while it measures, as other ranks of one machine will: they share its memory's
// bandwidth, its caches and its power.
#pragma once
#include <sys/types.h>

#include <vector>

#include "base/function_ref.h"

namespace linnet {

class Neighbors {
 public:
  // Forks `count` processes, each of which calls work(started): that calls started() when it is under way, and goes on
  // until it is ended. This process must have no other threads.
  using Started = FunctionRef<void()>;
  Neighbors(int count, FunctionRef<void(Started started)> work);
  ~Neighbors();  // ends them
  Neighbors(const Neighbors&) = delete;
  Neighbors& operator=(const Neighbors&) = delete;

  // Until all are under way. System error when one has ended.
  void wait_until_started() const;

 private:
  struct Neighbor {
    pid_t process;
    int started;  // readable when it is under way
  };
  std::vector<Neighbor> neighbors_;
};

}  // namespace linnet
