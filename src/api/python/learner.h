// Learner and Loader of Python.
#pragma once
#include <linnet/dataset.h>
#include <linnet/learner.h>
#include <atomic>
#include <memory>
#include <vector>
#include "api/python/tree.h"

namespace linnet::python {
class PyLearner {
 public:
  // `owner`: weak reference to the Python object whose _record(tensors) records the loss; `kept` gets all objects of
  // the model; `names`: the loss's inputs.
  PyLearner(nb::object owner, nb::handle model, nb::list kept, const nb::list& names, const nb::list& shapes,
      const nb::dict& options);
  ~PyLearner();
  PyLearner(const PyLearner&) = delete;
  PyLearner& operator=(const PyLearner&) = delete;

  Learner& learner() { return *learner_; }
  Tree& tree() { return tree_; }
  const std::vector<InputTypes>& shapes() const { return shapes_; }
  // The inputs' element types, from the first batch shape.
  const InputTypes& types() const { return shapes_.front(); }

 private:
  const nb::object owner_;
  Tree tree_;
  std::vector<InputTypes> shapes_;
  std::unique_ptr<Learner> learner_;
};

// A loader that restarts, with its own threads, in a forked process.
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
