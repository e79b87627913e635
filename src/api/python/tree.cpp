#include "api/python/tree.h"
#include <linnet/decoder.h>
#include <linnet/error.h>
#include <utility>
#include "base/fail.h"
#include "models/nn/trace.h"

namespace linnet::python {
namespace {
// Of python/linnet/modules.py.
nb::object python_name(const char* name) { return nb::module_::import_("linnet.modules").attr(name); }

template <class Part> Part* find_in(const std::unordered_map<PyObject*, Part*>& parts, nb::handle object) {
  const auto found = parts.find(object.ptr());
  return found == parts.end() ? nullptr : found->second;
}

// A Decoder that calls a Python object, which is part of the tree's model.
class PyDecoder : public Decoder {
 public:
  PyDecoder(nb::handle object, Tree& tree) : object_(object), tree_(tree) {}
  Tensor states(Tensor tokens, Tensor positions) override {
    const nb::gil_scoped_acquire gil;
    const Recording recording(tree_, nullptr);
    return tensor(object_.attr("states")(tokens, positions));
  }
  Tensor head() override {
    const nb::gil_scoped_acquire gil;
    const Recording recording(tree_, nullptr);
    return tensor(object_.attr("head")());
  }
  int64_t vocab_size() const override { return number("vocab_size"); }
  int64_t max_length() const override { return number("max_length"); }

 private:
  static Tensor tensor(const nb::object& result) {
    Operand operand{result};
    if (!nb::try_cast(result, operand)) fail_user("states() and head() of a Decoder return tensors");
    return operand.tensor();
  }
  int64_t number(const char* name) const {
    const nb::gil_scoped_acquire gil;
    return nb::cast<int64_t>(object_.attr(name));
  }
  const nb::handle object_;  // kept alive by its owner
  Tree& tree_;
};
}  // namespace

Tree::Tree(nb::handle model, nb::list kept) {
  if (!nb::isinstance(model, python_name("Module")))
    fail_user("a model is a linnet.Module, and a ", class_name(model), " was given");
  root_ = add(nullptr, "", model, kept);
}

// Destroys parts before what contains them.
Tree::~Tree() {
  while (!parameters_.empty()) parameters_.pop_back();
  while (!buffers_.empty()) buffers_.pop_back();
  while (!modules_.empty()) modules_.pop_back();
}

Module* Tree::find(nb::handle module) const { return find_in(by_object_, module); }
const Parameter* Tree::find_parameter(nb::handle object) const { return find_in(parameter_of_, object); }
const SavedBuffer* Tree::find_buffer(nb::handle object) const { return find_in(buffer_of_, object); }

Tensor Tree::tensor(nb::handle parameter) const {
  if (nb::isinstance<ParameterOf>(parameter)) {
    const auto& part = nb::cast<const ParameterOf&>(parameter);
    if (const Module* layer = find(part.layer)) {
      const std::string path = layer->path(), full = path.empty() ? part.name : path + "." + part.name;
      for (const ParameterSpec& spec : layer->parameters())
        if (spec.name == full) return Trace::current().parameter(spec);
      fail_user(python_line().text(), ": the layer \"", path, "\" has no parameter \"", part.name, "\"");
    }
  } else if (const Parameter* found = find_parameter(parameter)) {
    return *found;
  }
  fail_user(python_line().text(), ": the model that is recorded does not have this parameter");
}

Module* Tree::add(Module* parent, const std::string& name, nb::handle object, nb::list& kept) {
  kept.append(object);
  if (const nb::object spec = nb::getattr(object, "_spec", nb::none()); !spec.is_none()) {
    // A layer is a part; as a whole model it gets a root around it.
    if (!parent) parent = modules_.emplace_back(std::make_unique<Module>()).get(), root_ = parent;
    Module* layer = modules_.emplace_back(nb::cast<const LayerSpec&>(spec).make(parent, name)).get();
    by_object_[object.ptr()] = layer;
    return root_ ? root_ : layer;
  }
  std::unique_ptr<Module> made;
  if (nb::isinstance(object, python_name("Decoder"))) {
    made = std::make_unique<PyDecoder>(object, *this);
    if (parent) parent->adopt(*made, name);
  } else {
    made = parent ? std::make_unique<Module>(parent, name) : std::make_unique<Module>();
  }
  Module* module = modules_.emplace_back(std::move(made)).get();
  by_object_[object.ptr()] = module;
  if (!parent) root_ = module;
  add_parts(*module, object, kept);
  return module;
}

// A part that occurs twice has the name of its first location.
void Tree::add_parts(Module& parent, nb::handle holder, nb::list& kept) {
  for (const nb::handle part : python_name("parts_of")(holder)) {
    const auto name = nb::cast<std::string>(part[0]);
    const nb::object value = part[1];
    if (by_object_.contains(value.ptr()) || parameter_of_.contains(value.ptr())) continue;
    if (nb::isinstance<ParameterSource>(value)) {
      kept.append(value);
      add_parameter(parent, name, value);
    } else if (nb::isinstance(value, python_name("Module"))) {
      add(&parent, name, value, kept);
    } else {
      add_parts(*modules_.emplace_back(std::make_unique<Module>(&parent, name)), value, kept);
    }
  }
}

void Tree::add_parameter(Module& parent, const std::string& name, nb::handle parameter) {
  const auto& source = nb::cast<const ParameterSource&>(parameter);
  if (source.kind == ParameterSource::Kind::kBuffer) {
    buffers_.push_back(std::make_unique<SavedBuffer>(&parent, name, source.shape, source.initializer));
    parameter_of_[parameter.ptr()] = buffer_of_[parameter.ptr()] = buffers_.back().get();
  } else {
    parameters_.push_back(std::make_unique<Parameter>(&parent, name, source.shape, source.initializer));
    parameter_of_[parameter.ptr()] = parameters_.back().get();
  }
}

Recording::Recording(Tree& tree, Tracer* tracer)
    : tree_(tree), tracer_(tracer), trace_(Trace::current()), outer_(std::exchange(trace_.recording, this)) {}
Recording::~Recording() { trace_.recording = outer_; }

Recording* Recording::current() {
  const Trace* trace = Trace::find();
  return trace ? trace->recording : nullptr;
}

Tree& Recording::tree(const char* what) {
  const Recording* recording = current();
  if (!recording)
    fail_user(
        python_line(), ": ", what, " is used outside of a loss; modules compute while a Learner records its loss");
  return recording->tree_;
}

Tracer& Recording::tracer(const char* what) {
  const Recording* recording = current();
  if (!recording || !recording->tracer_)
    fail_user(python_line().text(), ": ", what, " is used outside of a loss that a Learner records");
  return *recording->tracer_;
}
}  // namespace linnet::python
