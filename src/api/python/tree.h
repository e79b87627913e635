// C++ modules for a Python model while it is traced: built from its modules' attributes, so that a Python module may be
// part of several models and change between them.
#pragma once
#include <linnet/module.h>
#include <linnet/tracer.h>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
#include "api/python/python.h"

namespace linnet::python {
// A library layer that is not yet part of a model.
struct LayerSpec {
  // Constructs it; called once for each model.
  std::function<std::unique_ptr<Module>(Module* parent, const std::string& name)> make;
  // Applies it to one tensor; empty for layers with functions of their own.
  std::function<Tensor(Module& layer, At x)> apply;
};

// A Python parameter that each model instantiates.
struct ParameterSource {
  Shape shape;
  Initializer initializer;
  enum class Kind { kTrained, kBuffer } kind = Kind::kTrained;
};

// A parameter of a layer: `layer.weight`.
struct ParameterOf {
  nb::object layer;
  std::string name;
};

class Tree {
 public:
  // `kept` gets the model's Python objects; the tree's owner keeps it. Error(kUser) unless it is a linnet.Module.
  Tree(nb::handle model, nb::list kept);
  ~Tree();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  Module& root() { return *root_; }
  Module* find(nb::handle module) const;
  const Parameter* find_parameter(nb::handle parameter) const;
  const SavedBuffer* find_buffer(nb::handle buffer) const;
  // A parameter of a module or layer in the recorded graph. Throws Error(kUser) if the model lacks it.
  Tensor tensor(nb::handle parameter) const;

 private:
  Module* add(Module* parent, const std::string& name, nb::handle object, nb::list& kept);
  void add_parts(Module& parent, nb::handle holder, nb::list& kept);
  void add_parameter(Module& parent, const std::string& name, nb::handle parameter);

  Module* root_ = nullptr;
  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<SavedBuffer>> buffers_;
  std::unordered_map<PyObject*, Module*> by_object_;
  std::unordered_map<PyObject*, Parameter*> parameter_of_;  // buffers too
  std::unordered_map<PyObject*, SavedBuffer*> buffer_of_;
};

// A number as a scalar of x's type. Throws Error(kUser) outside of a loss.
Tensor number_beside(At x, double value);

// Makes the current trace record a graph of the tree's model. `tracer`: of a loss; null: records none.
class Recording {
 public:
  Recording(Tree& tree, Tracer* tracer);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Error(kUser) naming `what` if nothing is recorded.
  static Tree& tree(const char* what);
  static Tracer& tracer(const char* what);

 private:
  static Recording* current();  // null without a recording

  const PythonCall call_;  // modules and losses are Python's code
  Tree& tree_;
  Tracer* const tracer_;
  Trace& trace_;
  Recording* const outer_;
};
}  // namespace linnet::python
