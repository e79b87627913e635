// A loader that begins anew, with threads of its own, in a process that was forked.
#pragma once
#include <linnet/dataset.h>
#include <atomic>
#include <memory>
#include "api/python/python.h"

namespace linnet::python {

class PyLoader {
 public:
  PyLoader(const Dataset& data, const LoaderOptions& options);
  ~PyLoader();
  PyLoader(const PyLoader&) = delete;
  PyLoader& operator=(const PyLoader&) = delete;

  Loader& loader();
  // A copy of the next batch. Throws Error(kUser) while another thread calls it.
  Arrays next();

 private:
  const Dataset data_;
  const LoaderOptions options_;
  std::unique_ptr<Loader> loader_;
  std::atomic<bool> busy_ = false;
  ForkGuard guard_;
};

}  // namespace linnet::python
