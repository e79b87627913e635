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
#include "engine/ir/tensor.h"
#include "models/nn/initializer.h"

namespace linnet {

// What is known of a parameter.
struct ParameterSpec {
  // The name with the path of its module: "encoder.layers.0.linear1.weight".
  std::string name;
  // The sizes of its axes.
  Shape shape;
  // Gives its values before training.
  Initializer initializer;
  // Whether weight decay applies to it: to matrices, not to biases and norms.
  bool weight_decay;
  // Whether it has a gradient.
  bool trainable = true;
  // Whether it is saved though it is not trainable; see SavedBuffer.
  bool buffer = false;
  // Whether its rows are looked up by ids, as those of an embedding are.
  bool table = false;
};

class Parameter;
class Learner;

// A part of a model, or a whole one. It is not copied. A module that is moved, as in a vector that grows, takes its
// parts and its place in its parent along; what refers to it by address, such as the function of a loss, does not
// follow. Parts and parent may be destroyed in any order; a destroyed part is no longer in its parent.
class Module {
 public:
  // A root: a model.
  Module() = default;
  // A part of `parent`, usually `this` of the struct whose member it is. An empty name adds nothing to the path, and
  // one that ends in '_' is joined to the names below it without a dot ("in_proj_weight"). Throws Error(kUser) when
  // parent is null and for a name with '*' or a control character.
  Module(Module* parent, std::string name);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  // Takes the parts and the place in the parent.
  Module(Module&& other) noexcept;
  // Leaves the parent.
  virtual ~Module();

  // The names from the root to this module, with dots between: "encoder.layers.0".
  std::string path() const;
  // This module's parameters and those below it, in order of declaration.
  std::vector<ParameterSpec> parameters() const;
  // The number of elements of the trainable parameters.
  int64_t parameter_count() const;
  // Whether this is `root` or one of the modules below it.
  bool is_within(const Module& root) const;

  // Calls visitor(module) for this module and those below it, in order of declaration.
  void visit(const std::function<void(Module&)>& visitor);
  // A learner calls this once it has drawn the values of all parameters, for modules that have theirs from elsewhere: a
  // folder. `learner` is of the model that this is a part of.
  virtual void begin(Learner& learner);

  // Makes a root, and all that is in it, a part of this module: names get `name` in front. The root has not been used
  // in a trace or a layout that still lives. Throws Error(kUser) when it is a part of a module already.
  void adopt(Module& root, const std::string& name);

 private:
  friend class Parameter;
  void collect(std::vector<ParameterSpec>& out) const;
  void prefix_names(const std::string& prefix);
  // Children and parameters in one list, so that names come in the order they are declared.
  struct Member {
    Module* module;
    Parameter* parameter;
    bool operator==(const Member&) const = default;
  };
  void remove(const Member& member);
  void replace(const Member& member, const Member& with);

  Module* parent_ = nullptr;
  std::string name_;
  std::vector<Member> members_;
};

// An array that training changes. Where a tensor is wanted, a parameter stands for its value in the graph that is being
// traced.
class Parameter {
 public:
  // A part of `module`. `table`: see ParameterSpec. Throws Error(kUser) when module is null, for a size below 1, for an
  // empty initializer and for a name as Module() does.
  Parameter(Module* module, const std::string& name, Shape shape, Initializer initializer, bool table = false);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;
  // Takes the place in the module.
  Parameter(Parameter&& other) noexcept;
  // Leaves the module.
  ~Parameter();

  // The parameter as an input of the graph being traced. Throws Error(kUser) outside of a trace, and when the model
  // that is traced does not have this parameter.
  operator Tensor() const;  // NOLINT: used wherever a tensor is
  // The same by name.
  Tensor tensor() const { return *this; }
  // Its name, shape and further properties.
  const ParameterSpec& spec() const { return spec_; }
  // The module that it is a part of; null after that was destroyed.
  const Module* module() const { return module_; }

 protected:
  friend class Module;  // which renames it
  ParameterSpec spec_;  // what spec() returns

 private:
  Module* module_;
};

// A constant table the module computes once (sinusoidal positions): not trained, not saved.
class Constant : public Parameter {
 public:
  // See Parameter.
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
  // See Parameter.
  SavedBuffer(Module* module, const std::string& name, Shape shape, Initializer initializer)
      : Parameter(module, name, shape, std::move(initializer)) {
    spec_.trainable = false;
    spec_.weight_decay = false;
    spec_.buffer = true;
  }

  // After the step (with accumulation: after each micro-batch) the buffer holds `next`, of its shape. Only in graphs
  // that train, and once in each; reading the buffer in the same graph gives the old value. Throws Error(kUser)
  // otherwise.
  void update(Tensor next) const;
};

// Nodes made while this is alive carry the module's path, which error messages and profiles show.
class ModuleScope {
 public:
  // Enters the module. Throws Error(kUser) outside of a trace.
  explicit ModuleScope(const Module& module);
  // Leaves it.
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  ScopeId outer_;
};

// Throws Error(kUser): a list of modules has no number `i`.
[[noreturn]] void fail_module_index(const std::string& path, size_t i, size_t size);

// Modules of one type, named "0", "1", ..., as PyTorch's ModuleList.
template <class T>
class ModuleList : public Module {
 public:
  // `count` modules T(this, name, args...).
  template <class... Args>
  ModuleList(Module* parent, std::string name, int64_t count, const Args&... args) : Module(parent, std::move(name)) {
    for (int64_t i = 0; i < count; ++i) append(args...);
  }
  // An empty list.
  ModuleList(Module* parent, std::string name) : Module(parent, std::move(name)) {}

  // Adds a module T(this, name, args...) and returns it.
  template <class... Args>
  T& append(const Args&... args) {
    items_.push_back(std::make_unique<T>(this, std::to_string(items_.size()), args...));
    return *items_.back();
  }
  // The number of modules.
  size_t size() const { return items_.size(); }
  // Module number i, counted from 0. Throws Error(kUser) when there is none.
  T& operator[](size_t i) { return *items_[checked(i)]; }
  // Module number i, counted from 0. Throws Error(kUser) when there is none.
  const T& operator[](size_t i) const { return *items_[checked(i)]; }

  // Visits the modules in their order.
  template <class List, class Item>
  class Iterator {
   public:
    // At number i of the list.
    Iterator(List* list, size_t i) : list_(list), i_(i) {}
    // The module.
    Item& operator*() const { return (*list_)[i_]; }
    // Goes to the next module.
    Iterator& operator++() {
      ++i_;
      return *this;
    }
    // Whether both are at the same module.
    bool operator==(const Iterator& other) const { return i_ == other.i_; }

   private:
    List* list_;
    size_t i_;
  };
  using Module::begin;  // of a module itself
  // The first module.
  Iterator<ModuleList, T> begin() { return {this, 0}; }
  // Behind the last module.
  Iterator<ModuleList, T> end() { return {this, size()}; }
  // The first module.
  Iterator<const ModuleList, const T> begin() const { return {this, 0}; }
  // Behind the last module.
  Iterator<const ModuleList, const T> end() const { return {this, size()}; }

 private:
  size_t checked(size_t i) const {
    if (i >= items_.size()) fail_module_index(path(), i, items_.size());
    return i;
  }

  std::deque<std::unique_ptr<T>> items_;
};

}  // namespace linnet
