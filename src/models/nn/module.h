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
// The description of a parameter.
struct ParameterSpec {
  // The name with the path of its module: "encoder.layers.0.linear1.weight".
  std::string name;
  Shape shape;              // the sizes of its axes
  Initializer initializer;  // gives its values before training
  bool weight_decay;        // whether weight decay applies to it: to matrices, not to biases and norms
  bool trainable = true;    // whether it has a gradient
  bool buffer = false;      // whether it is saved though not trainable; see SavedBuffer
  bool table = false;       // whether its rows are looked up by ids, as in an embedding
};

class Parameter;
class Learner;

// A part of a model, or a whole one. It cannot be copied. A moved module, as in a vector that grows, keeps its parts
// and its position in its parent, but references to its address, such as in a loss function, become invalid. Parts and
// parent may be destroyed in any order; a destroyed part leaves its parent.
class Module {
 public:
  Module() = default;  // a root: a model
  // A part of `parent`, usually `this` of the struct whose member it is. An empty name adds nothing to the path; one
  // that ends in '_' joins the names below without a dot ("in_proj_weight"). Throws Error(kUser) if parent is null and
  // for a name with '*' or a control character.
  Module(Module* parent, std::string name);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  Module(Module&& other) noexcept;  // takes over the parts and the position in the parent
  virtual ~Module();                // leaves the parent

  std::string path() const;                       // from the root to this module: "encoder.layers.0"
  std::vector<ParameterSpec> parameters() const;  // of this module and those below it, in order of declaration
  int64_t parameter_count() const;                // elements of the trainable parameters
  bool is_within(const Module& root) const;       // whether this is `root` or below it

  // Calls visitor(module) for this module and those below it, in order of declaration.
  void visit(const std::function<void(Module&)>& visitor);
  // A learner calls this after it has drawn the values of all parameters, for modules that load theirs from a folder.
  // `learner` trains the model that contains this module.
  virtual void begin(Learner& learner);

  // Makes a root with all its parts a part of this module: names get `name` in front. No live trace or layout may have
  // used the root. Throws Error(kUser) if it is a part of a module already.
  void adopt(Module& root, const std::string& name);

 private:
  friend class Parameter;
  void collect(std::vector<ParameterSpec>& out) const;
  void prefix_names(const std::string& prefix);
  // Children and parameters in one list, in order of declaration.
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

// An array that training changes. Used as a tensor, it stands for its value in the graph being traced.
class Parameter {
 public:
  // A part of `module`. `table`: see ParameterSpec. Throws Error(kUser) if module is null, for a size below 1, an empty
  // initializer and the names that Module() refuses.
  Parameter(Module* module, const std::string& name, Shape shape, Initializer initializer, bool table = false);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;
  Parameter(Parameter&& other) noexcept;  // takes over the position in the module
  ~Parameter();                           // leaves the module

  // The parameter in the graph being traced. Throws Error(kUser) outside of a trace and if the model does not have it.
  operator Tensor() const;                             // NOLINT: used wherever a tensor is
  Tensor tensor() const { return *this; }              // the same by name
  const ParameterSpec& spec() const { return spec_; }  // name, shape and further properties
  const Module* module() const { return module_; }     // null after the module was destroyed

 protected:
  friend class Module;  // which renames it
  ParameterSpec spec_;  // what spec() returns

 private:
  Module* module_;
};

// A constant table that the module computes once (sinusoidal positions): not trained, not saved.
class Constant : public Parameter {
 public:
  // See Parameter.
  Constant(Module* module, const std::string& name, Shape shape, Initializer initializer)
      : Parameter(module, name, shape, std::move(initializer)) {
    spec_.trainable = false;
    spec_.weight_decay = false;
  }
};

// State that training updates and evaluation reads (running statistics of batch normalization): not trained, saved with
// the parameters, not part of a moving average of the parameters.
class SavedBuffer : public Parameter {
 public:
  // See Parameter.
  SavedBuffer(Module* module, const std::string& name, Shape shape, Initializer initializer)
      : Parameter(module, name, shape, std::move(initializer)) {
    spec_.trainable = false;
    spec_.weight_decay = false;
    spec_.buffer = true;
  }

  // After the step (with accumulation: after each micro-batch) the buffer holds `next`, of its shape, but for elements
  // that are not finite, which keep their values; reading it later in the same graph gives that value, through which no
  // gradient flows. So a module that is used twice updates its buffers twice. Throws Error(kUser) in graphs that do not
  // train.
  void update(Tensor next) const;
};

// Nodes made during its lifetime carry the module's path, which error messages and profiles show.
class ModuleScope {
 public:
  // Enters the module. Throws Error(kUser) outside of a trace.
  explicit ModuleScope(const Module& module);
  ~ModuleScope();  // leaves it
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  ScopeId outer_;
};

// Throws Error(kUser): a list of modules has no number `i`.
[[noreturn]] void fail_module_index(const std::string& path, size_t i, size_t size);

// Modules of one type, named "0", "1", ..., as PyTorch's ModuleList.
template <class T> class ModuleList : public Module {
 public:
  // `count` modules T(this, name, args...).
  template <class... Args> ModuleList(Module* parent, std::string name, int64_t count, const Args&... args)
      : Module(parent, std::move(name)) {
    for (int64_t i = 0; i < count; ++i) append(args...);
  }
  // An empty list.
  ModuleList(Module* parent, std::string name) : Module(parent, std::move(name)) {}

  // Adds a module T(this, name, args...) and returns it.
  template <class... Args> T& append(const Args&... args) {
    items_.push_back(std::make_unique<T>(this, std::to_string(items_.size()), args...));
    return *items_.back();
  }
  size_t size() const { return items_.size(); }  // the number of modules
  // Module `i`, counted from 0. Throws Error(kUser) if there is none.
  T& operator[](size_t i) { return *items_[checked(i)]; }
  // Module `i`, counted from 0. Throws Error(kUser) if there is none.
  const T& operator[](size_t i) const { return *items_[checked(i)]; }

  // Visits the modules in their order.
  template <class List, class Item> class Iterator {
   public:
    // At number i of the list.
    Iterator(List* list, size_t i) : list_(list), i_(i) {}
    Item& operator*() const { return (*list_)[i_]; }  // the module
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
  using Module::begin;                                                        // of a module itself
  Iterator<ModuleList, T> begin() { return {this, 0}; }                       // the first module
  Iterator<ModuleList, T> end() { return {this, size()}; }                    // behind the last module
  Iterator<const ModuleList, const T> begin() const { return {this, 0}; }     // the first module
  Iterator<const ModuleList, const T> end() const { return {this, size()}; }  // behind the last module

 private:
  size_t checked(size_t i) const {
    if (i >= items_.size()) fail_module_index(path(), i, items_.size());
    return i;
  }

  std::deque<std::unique_ptr<T>> items_;
};
}  // namespace linnet
