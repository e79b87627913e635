// A module is a struct whose members are its parameters and sub-modules, each named once, at the member. Using it
// inside a Trace records nodes; the name path becomes the parameter's name in files and the place in error messages.
//
//   struct Mlp : Module {
//     Mlp(Module* up, std::string name, int64_t d) : Module(up, name), fc{this, "fc", d, 4 * d}, ... {}
//     Tensor operator()(Tensor x) { ModuleScope scope(*this); return proj(relu(fc(x))); }
//     Linear fc, proj;
//   };
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "nn/initializer.h"

namespace linnet {

struct ParameterSpec {
  std::string name;  // "encoder.layers.0.linear1.weight"
  Shape shape;
  Initializer initializer;
  bool weight_decay;  // matrices yes, biases and norms no
  bool trainable = true;
  bool buffer = false;  // not trainable, but saved: see SavedBuffer
  bool table = false;   // rows are looked up by ids: an embedding
};

class Parameter;

class Module {
 public:
  Module() = default;                        // a root
  Module(Module* parent, std::string name);  // an empty name adds nothing to the path
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  std::string path() const;
  // This module's parameters and those below it, in order of declaration.
  std::vector<ParameterSpec> parameters() const;
  int64_t parameter_count() const;  // elements of the trainable ones

  // Calls visitor(module) for this module and those below it, in order of declaration.
  void visit(const std::function<void(Module&)>& visitor);

  // Makes a root, and all that is in it, a part of this module: names get `name` in front. The root outlives this
  // module, and has not been used in a trace or a layout that still lives.
  void adopt(Module& root, const std::string& name);

 private:
  friend class Parameter;
  void collect(std::vector<ParameterSpec>& out) const;
  void prefix_names(const std::string& prefix);
  // Children and parameters in one list, so that names come in the order they are declared.
  struct Member {
    Module* module;
    Parameter* parameter;
  };
  Module* parent_ = nullptr;
  std::string name_;
  std::vector<Member> members_;
};

class Parameter {
 public:
  // `table`: see ParameterSpec.
  Parameter(Module* module, const std::string& name, Shape shape, Initializer initializer, bool table = false);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  // The parameter as an input of the graph being traced.
  operator Tensor() const;  // NOLINT: used wherever a tensor is
  Tensor tensor() const { return *this; }
  const ParameterSpec& spec() const { return spec_; }

 protected:
  friend class Module;  // which renames it
  ParameterSpec spec_;
};

// A constant table the module computes once (sinusoidal positions): not trained, not saved.
class Constant : public Parameter {
 public:
  Constant(Module* module, const std::string& name, Shape shape, Initializer initializer)
      : Parameter(module, name, shape, std::move(initializer)) {
    spec_.trainable = false;
    spec_.weight_decay = false;
  }
};

// State that training graphs update and evaluation graphs read (the running statistics of batch normalization): not
// trained, saved with the parameters. A moving average of the parameters leaves it alone.
class SavedBuffer : public Parameter {
 public:
  SavedBuffer(Module* module, const std::string& name, Shape shape, Initializer initializer)
      : Parameter(module, name, shape, std::move(initializer)) {
    spec_.trainable = false;
    spec_.weight_decay = false;
    spec_.buffer = true;
  }

  // After the step (with accumulation: after each micro-batch) the buffer holds `next`, of its shape. Only in graphs
  // that train, and once in each; reading the buffer in the same graph gives the old value.
  void update(Tensor next) const;
};

// Nodes made while this is alive carry the module's path.
class ModuleScope {
 public:
  explicit ModuleScope(const Module& module);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  ScopeId outer_;
};

template <class T>
class ModuleList : public Module {
 public:
  template <class... Args>
  ModuleList(Module* parent, std::string name, int64_t count, const Args&... args) : Module(parent, std::move(name)) {
    for (int64_t i = 0; i < count; ++i) items_.push_back(std::make_unique<T>(this, std::to_string(i), args...));
  }
  size_t size() const { return items_.size(); }
  T& operator[](size_t i) { return *items_[i]; }
  const T& operator[](size_t i) const { return *items_[i]; }

 private:
  std::deque<std::unique_ptr<T>> items_;
};

}  // namespace linnet
