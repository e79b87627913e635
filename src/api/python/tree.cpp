#include "api/python/tree.h"

#include <linnet/decoder.h>
#include <linnet/error.h>

#include "models/nn/trace.h"

namespace linnet::python {
namespace {

thread_local Tree* t_tree = nullptr;
thread_local Tracer* t_tracer = nullptr;

// The classes of python/linnet/modules.py.
nb::object python_class(const char* name) { return nb::module_::import_("linnet.modules").attr(name); }

class PyDecoder : public Decoder {
 public:
  explicit PyDecoder(nb::handle object) : object_(object) {}
  Tensor states(Tensor tokens, Tensor positions) override {
    const nb::gil_scoped_acquire gil;
    return tensor(object_.attr("states")(tokens, positions));
  }
  Tensor head() override {
    const nb::gil_scoped_acquire gil;
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
  const nb::handle object_;  // its owner keeps it
};

}  // namespace

std::unique_ptr<Module> make_decoder(nb::handle object) { return std::make_unique<PyDecoder>(object); }

Tree::Tree(nb::handle model, nb::list kept) {
  if (!nb::isinstance(model, python_class("Module")))
    fail_user("a model is a linnet.Module, and a " + nb::cast<std::string>(model.type().attr("__name__")) +
              " was given");
  root_ = add(nullptr, "", model, kept);
}

// Parts before what they are parts of.
Tree::~Tree() {
  while (!parameters_.empty()) parameters_.pop_back();
  while (!buffers_.empty()) buffers_.pop_back();
  while (!modules_.empty()) modules_.pop_back();
}

Module* Tree::find(nb::handle module) const {
  const auto found = by_object_.find(module.ptr());
  return found == by_object_.end() ? nullptr : found->second;
}

const Parameter* Tree::find_parameter(nb::handle object) const {
  const auto found = parameter_of_.find(object.ptr());
  return found == parameter_of_.end() ? nullptr : found->second;
}

const SavedBuffer* Tree::find_buffer(nb::handle object) const {
  const auto found = buffer_of_.find(object.ptr());
  return found == buffer_of_.end() ? nullptr : found->second;
}

Tensor Tree::tensor(nb::handle parameter) const {
  if (nb::isinstance<ParameterOf>(parameter)) {
    const auto& part = nb::cast<const ParameterOf&>(parameter);
    if (const Module* layer = find(part.layer)) {
      const std::string path = layer->path(), full = path.empty() ? part.name : path + "." + part.name;
      for (const ParameterSpec& spec : layer->parameters())
        if (spec.name == full) return Trace::current().parameter(spec);
      fail_user(python_line().text() + ": the layer \"" + path + "\" has no parameter \"" + part.name + "\"");
    }
  } else if (const Parameter* found = find_parameter(parameter)) {
    return *found;
  }
  fail_user(python_line().text() + ": the model that is recorded does not have this parameter");
}

Module* Tree::add(Module* parent, const std::string& name, nb::handle object, nb::list& kept) {
  kept.append(object);
  if (const nb::object spec = nb::getattr(object, "_spec", nb::none()); !spec.is_none()) {
    // A layer is a part; one that is a model by itself gets a root around it.
    if (!parent) parent = modules_.emplace_back(std::make_unique<Module>()).get(), root_ = parent;
    Module* layer = modules_.emplace_back(nb::cast<const LayerSpec&>(spec).make(parent, name)).get();
    by_object_[object.ptr()] = layer;
    return root_ ? root_ : layer;
  }
  std::unique_ptr<Module> made;
  if (nb::isinstance(object, python_class("Decoder"))) {
    made = make_decoder(object);
    if (parent) parent->adopt(*made, name);
  } else {
    made = parent ? std::make_unique<Module>(parent, name) : std::make_unique<Module>();
  }
  Module* module = modules_.emplace_back(std::move(made)).get();
  by_object_[object.ptr()] = module;
  if (!parent) root_ = module;
  add_members(*module, object, kept);
  return module;
}

void Tree::add_members(Module& parent, nb::handle object, nb::list& kept) {
  const nb::object members = nb::module_::import_("builtins").attr("vars")(object);
  for (const auto& [name, value] : nb::dict(nb::borrow<nb::dict>(members)))
    add_member(parent, nb::cast<std::string>(name), value, kept);
}

// A part that a model has twice is named where it stands first.
void Tree::add_member(Module& parent, const std::string& name, nb::handle value, nb::list& kept) {
  if (by_object_.contains(value.ptr()) || parameter_of_.contains(value.ptr())) return;
  if (nb::isinstance<ParameterSource>(value)) {
    const auto& source = nb::cast<const ParameterSource&>(value);
    kept.append(value);
    if (source.kind == ParameterSource::Kind::kBuffer) {
      buffers_.push_back(std::make_unique<SavedBuffer>(&parent, name, source.shape, source.initializer));
      parameter_of_[value.ptr()] = buffer_of_[value.ptr()] = buffers_.back().get();
    } else {
      parameters_.push_back(std::make_unique<Parameter>(&parent, name, source.shape, source.initializer));
      parameter_of_[value.ptr()] = parameters_.back().get();
    }
  } else if (nb::isinstance(value, python_class("Module"))) {
    add(&parent, name, value, kept);
  } else if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr()) || PyDict_Check(value.ptr())) {
    // Only containers of parts are parts.
    Module* list = nullptr;
    const auto item = [&](const std::string& key, nb::handle part) {
      if (!nb::isinstance(part, python_class("Module")) && !nb::isinstance<ParameterSource>(part)) return;
      if (!list) list = modules_.emplace_back(std::make_unique<Module>(&parent, name)).get();
      add_member(*list, key, part, kept);
    };
    if (PyDict_Check(value.ptr())) {
      for (const auto& [key, part] : nb::borrow<nb::dict>(value)) item(nb::cast<std::string>(nb::str(key)), part);
      return;
    }
    int64_t index = 0;
    for (const nb::handle part : nb::borrow<nb::sequence>(value)) item(std::to_string(index++), part);
  }
}

Recording::Recording(Tree& tree, Tracer* tracer) : outer_tree_(t_tree), outer_tracer_(t_tracer) {
  t_tree = &tree, t_tracer = tracer;
}
Recording::~Recording() { t_tree = outer_tree_, t_tracer = outer_tracer_; }

Tree& Recording::tree(const char* what) {
  if (!t_tree)
    fail_user(python_line().text() + ": " + what +
              " is used outside of a loss; modules compute while a Learner records its loss");
  return *t_tree;
}

Tracer& Recording::tracer(const char* what) {
  if (!t_tracer) fail_user(python_line().text() + ": " + what + " is used outside of a loss that a Learner records");
  return *t_tracer;
}

}  // namespace linnet::python
