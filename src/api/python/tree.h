// The C++ modules that stand for a model of Python while it is traced: built from the attributes of its modules, so
// that a Python module may be a part of several models and be changed between them.
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

// A layer of the library before it is a part of a model.
struct LayerSpec {
  // Constructs it; called once for each model.
  std::function<std::unique_ptr<Module>(Module* parent, const std::string& name)> make;
  // Applies it to one tensor; empty for layers with functions of their own.
  std::function<Tensor(Module& layer, At x)> apply;
};

// A parameter of Python: what it will be in each model.
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
  // `kept` gets all Python objects of the model; whoever owns the tree keeps it. Throws Error(kUser) for a model that
  // is no linnet.Module.
  Tree(nb::handle model, nb::list kept);
  ~Tree();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  Module& root() { return *root_; }
  // Null when the model has no such part.
  Module* find(nb::handle module) const;
  const Parameter* find_parameter(nb::handle parameter) const;
  const SavedBuffer* find_buffer(nb::handle buffer) const;
  // A parameter, of a module or a layer, in the graph that is recorded. Throws Error(kUser) when the model does not
  // have it.
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

// While it lives, the current trace records a graph of the tree's model. `tracer`: of a loss; null: none is recorded.
class Recording {
 public:
  Recording(Tree& tree, Tracer* tracer);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Error(kUser), which names `what`, where nothing is recorded.
  static Tree& tree(const char* what);
  static Tracer& tracer(const char* what);

 private:
  static Recording* current();  // null where nothing is recorded

  Tree& tree_;
  Tracer* const tracer_;
  Trace& trace_;
  Recording* const outer_;
};

}  // namespace linnet::python
