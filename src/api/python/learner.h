// A Learner of a Python model.
#pragma once
#include <linnet/learner.h>
#include <memory>
#include <vector>
#include "api/python/python.h"
#include "api/python/tree.h"

namespace linnet::python {

class PyLearner {
 public:
  // `owner`: a weak reference to the Python object whose _record(tensors) records the loss; `kept` gets all objects of
  // the model; `names`: the inputs of the loss.
  PyLearner(nb::object owner, nb::handle model, nb::list kept, const nb::list& names, const nb::list& shapes,
            const nb::dict& options);
  ~PyLearner();
  PyLearner(const PyLearner&) = delete;
  PyLearner& operator=(const PyLearner&) = delete;

  Learner& learner() { return *learner_; }
  Tree& tree() { return tree_; }
  const std::vector<InputTypes>& shapes() const { return shapes_; }
  // Of the first batch shape: which element types inputs have.
  const InputTypes& types() const { return shapes_.front(); }

 private:
  const nb::object owner_;
  Tree tree_;
  std::vector<InputTypes> shapes_;
  std::unique_ptr<Learner> learner_;
};

// Throws Error(kUser) for what is no optimizer.
Optimizer optimizer_of(nb::handle given);

}  // namespace linnet::python
