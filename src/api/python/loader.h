// A loader that begins anew, with threads of its own, in a process that was forked.
#pragma once
#include <linnet/dataset.h>

#include <memory>
#include <optional>

#include "api/python/python.h"

namespace linnet::python {

class PyLoader {
 public:
  PyLoader(const Dataset& data, const LoaderOptions& options);
  ~PyLoader();
  PyLoader(const PyLoader&) = delete;
  PyLoader& operator=(const PyLoader&) = delete;

  Loader& loader();

 private:
  const Dataset data_;
  const LoaderOptions options_;
  std::unique_ptr<Loader> loader_;
  std::optional<ForkGuard> guard_ = ForkGuard();
};

}  // namespace linnet::python
