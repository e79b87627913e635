#include "api/python/tree.h"
#include <linnet/decoder.h>
#include <linnet/error.h>
#include <linnet/math.h>
#include <linnet/ops.h>
#include <nanobind/stl/variant.h>
#include <utility>
#include <variant>
#include "base/fail.h"
#include "base/functions.h"
#include "engine/ops/movement/movement.h"
#include "models/nn/trace.h"

namespace nanobind::detail {
bool type_caster<linnet::python::Operand>::from_python(handle source, uint8_t, cleanup_list*) noexcept {
  value.source = source;
  using namespace linnet::python;
  return nb::isinstance<linnet::Tensor>(source) || nb::isinstance<ParameterSource>(source) ||
         nb::isinstance<ParameterOf>(source) || nb::ndarray_check(source);
}
}  // namespace nanobind::detail

namespace linnet::python {
namespace {
// Of python/linnet/modules.py.
nb::object python_name(const char* name) { return nb::module_::import_("linnet.modules").attr(name); }

// A Decoder that calls a Python object, which is part of the tree's model.
class PyDecoder : public Decoder {
 public:
  PyDecoder(nb::handle object, Tree& tree) : object_(object), tree_(tree) {}
  Tensor states(Tensor tokens, Tensor positions) override { return tensor("states", tokens, positions); }
  Tensor head() override { return tensor("head"); }
  int64_t vocab_size() const override { return number("vocab_size"); }
  int64_t max_length() const override { return number("max_length"); }

 private:
  template <class... Arguments> Tensor tensor(const char* method, const Arguments&... arguments) {
    const WithGil gil;
    const Recording recording(tree_, nullptr);
    const nb::object result = object_.attr(method)(arguments...);
    Operand operand{result};
    if (!nb::try_cast(result, operand)) fail_user("states() and head() of a Decoder return tensors");
    return operand.tensor();
  }
  int64_t number(const char* name) const {
    const WithGil gil;
    return nb::cast<int64_t>(object_.attr(name));
  }
  const nb::handle object_;  // kept alive by its owner
  Tree& tree_;
};

int64_t axis_of(const Tensor& x, int64_t axis) {
  const int rank = x.shape().rank();
  if (axis < -rank || axis >= rank)
    throw Error(ErrorKind::kShape,
        python_line().text() + ": a tensor of shape " + x.shape().text() + " has no axis " + std::to_string(axis));
  return axis < 0 ? axis + rank : axis;
}

// linnet.indexing computes the cut of each axis and the result's shape.
Tensor item(Tensor x, nb::handle index) {
  const nb::object found = nb::module_::import_("linnet.indexing").attr("cuts")(to_tuple(x.shape()), index);
  for (const nb::handle cut : found[0])
    x = slice(At(x, python_line()), nb::cast<int>(cut[0]), nb::cast<int64_t>(cut[1]), nb::cast<int64_t>(cut[2]));
  const Shape shape = to_shape(nb::cast<std::vector<int64_t>>(found[1]));
  return shape == x.shape() ? x : reshape(At(x, python_line()), shape);
}

// Arguments of f(2, -1) or f((2, -1)).
nb::object flat(const nb::args& given) {
  return given.size() == 1 && nb::isinstance<nb::sequence>(given[0]) ? nb::object(given[0]) : nb::object(given);
}

// One size may be -1, which the others determine.
Shape wanted_shape(const Tensor& x, const nb::args& wanted) {
  const nb::object found = nb::module_::import_("linnet.indexing").attr("sizes")(x.shape().elements(), flat(wanted));
  return to_shape(nb::cast<std::vector<int64_t>>(found));
}

std::vector<int> axes_of(const Tensor& x) { return numbers_below<int>(x.shape().rank()); }

template <class Class> void add_operators(Class& tensor) {
  const auto both = [&](const char* name, const char* reversed, auto op) {
    tensor.def(
        name, [op](Operand a, Operand b) { return Tensor(op(a.number(), b.number().value)); }, nb::is_operator());
    tensor.def(
        name, [op](Operand a, double b) { return Tensor(op(a.number(), b)); }, nb::is_operator());
    tensor.def(
        reversed, [op](Operand a, double b) { return Tensor(op(b, a.number())); }, nb::is_operator());
    tensor.def(
        reversed, [op](Operand a, Operand b) { return Tensor(op(b.number(), a.number().value)); }, nb::is_operator());
  };
  both("__add__", "__radd__", std::plus<>());
  both("__sub__", "__rsub__", std::minus<>());
  both("__mul__", "__rmul__", std::multiplies<>());
  both("__truediv__", "__rtruediv__", std::divides<>());
  const std::pair<const char*, Tensor (*)(At, Tensor)> comparisons[] = {{"__eq__", equal}, {"__ne__", not_equal},
      {"__lt__", less}, {"__le__", less_equal}, {"__gt__", greater}, {"__ge__", greater_equal}};
  for (const auto& [name, compare] : comparisons) {
    tensor.def(
        name, [compare = compare](Operand a, Operand b) { return compare(a.number(), b.number().value); },
        nb::is_operator());
    tensor.def(
        name,
        [compare = compare](Operand a, double b) {
          const At x = a.number();
          return compare(x, number_beside(x, b));
        },
        nb::is_operator());
  }
  tensor.def(
      "__hash__", [](nb::handle x) { return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(x.ptr()) >> 4); });
  tensor.def(
      "__matmul__", [](Operand a, Operand b) { return matmul(a.at(), b.tensor()); }, nb::is_operator(),
      "The matrix product [..., M, K] @ [K, N] or [..., M, K] @ [..., K, N].");
  tensor.def(
      "__rmatmul__", [](Operand a, Operand b) { return matmul(b.at(), a.tensor()); }, nb::is_operator());
  tensor.def("__neg__", [](Operand x) { return -x.number(); });
  tensor.def("__abs__", [](Operand x) { return linnet::abs(x.number()); });
  tensor.def(
      "__pow__",
      [](Operand x, double exponent) { return exponent == 2 ? square(x.number()) : pow(x.number(), exponent); },
      nb::is_operator());
  tensor.def(
      "__getitem__", [](Operand x, nb::object index) { return item(x.tensor(), index); }, nb::arg().none(),
      "Part of the tensor by integers, slices of step 1, None and `...`.");
  tensor.def("__bool__", [](nb::handle) -> bool {
    fail_user(python_line(),
        ": a tensor has no numbers while the loss is recorded, so `if` cannot ask it; where(condition, a, b) "
        "chooses by element");
  });
  tensor.def("__iter__", [](nb::handle) -> nb::object {
    fail_user(python_line().text(), ": a tensor cannot be iterated; split(x, sizes, axis) cuts it");
  });
  tensor.def_prop_ro(
      "T",
      [](Operand x) {
        const Tensor value = x.tensor();
        const std::vector<int> axes = axes_of(value);
        return permute(At(value, python_line()), std::vector<int>(axes.rbegin(), axes.rend()));
      },
      "The axes in the opposite order.");
  tensor.attr("__array_ufunc__") = nb::none();  // makes NumPy defer to these operators
}

template <class Class> void add_methods(Class& tensor) {
  add_operators(tensor);
  tensor
      .def_prop_ro(
          "shape", [](Operand x) { return to_tuple(x.tensor().shape()); },
          nb::sig("def shape(self) -> tuple[int, ...]"), "The sizes of the axes.")
      .def_prop_ro(
          "ndim", [](Operand x) { return x.tensor().shape().rank(); }, "The number of axes.")
      .def_prop_ro(
          "size", [](Operand x) { return x.tensor().shape().elements(); }, "The number of elements.")
      .def_prop_ro(
          "dtype", [](Operand x) { return numpy_name(x.tensor().type().dtype); },
          "\"float32\", \"int32\" or \"uint8\".")
      .def(
          "reshape",
          [](Operand x, const nb::args& shape) {
            const Tensor value = x.tensor();
            return reshape(At(value, python_line()), wanted_shape(value, shape));
          },
          nb::sig("def reshape(self, *shape: int | typing.Sequence[int]) -> Tensor"),
          "The same elements in another shape; one size may be -1.")
      .def(
          "permute",
          [](Operand x, const nb::args& order) { return permute(x.at(), nb::cast<std::vector<int>>(flat(order))); },
          nb::sig("def permute(self, *order: int | typing.Sequence[int]) -> Tensor"),
          "Axes in another order: axis i of the result is axis order[i].")
      .def(
          "transpose",
          [](Operand x, int64_t first, int64_t second) {
            const Tensor value = x.tensor();
            std::vector<int> order = axes_of(value);
            std::swap(order[axis_of(value, first)], order[axis_of(value, second)]);
            return permute(At(value, python_line()), order);
          },
          "first"_a, "second"_a, "Two axes exchanged.")
      .def(
          "astype", [](Operand x, nb::object dtype) { return cast(x.at(), to_dtype(dtype)); }, "dtype"_a,
          "The elements as another type; floats are cut towards zero.");
  using Axes = std::optional<std::variant<int, std::vector<int>>>;
  const Row<Tensor (*)(At, const std::vector<int>&, bool)> reductions[] = {
      {"sum", linnet::sum, "The sum of all elements, or along axes."},
      {"mean", linnet::mean, "The mean of all elements, or along axes."},
      {"var", linnet::variance, "The mean of (x - mean)^2 of all elements, or along axes."},
      {"max", linnet::max, "The largest element of all, or along axes."},
      {"min", linnet::min, "The smallest element of all, or along axes."}};
  for (const auto& [name, function, doc] : reductions)
    tensor.def(
        name,
        [function = function](Operand x, const Axes& axes, bool keepdims) {
          const At value = x.at();
          if (!axes) return function(value, axes_of(value.value), keepdims);
          const int* one = std::get_if<int>(&*axes);
          return function(value, one ? std::vector{*one} : std::get<1>(*axes), keepdims);
        },
        "axis"_a = nb::none(), "keepdims"_a = false, doc);
}
}  // namespace

Tree::Tree(nb::handle model, nb::list kept) {
  const PythonCall call;
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

Module* Tree::find(nb::handle module) const { return find_or(by_object_, module.ptr(), nullptr); }
const Parameter* Tree::find_parameter(nb::handle object) const { return find_or(parameter_of_, object.ptr(), nullptr); }
const SavedBuffer* Tree::find_buffer(nb::handle object) const { return find_or(buffer_of_, object.ptr(), nullptr); }

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

Tensor number_beside(At x, double value) {
  const Tensor number = Recording::tracer("a number").number(value, x.where);
  return cast(At(number, x.where), x.value.type().dtype);
}

Tensor Operand::tensor() const {
  if (nb::isinstance<Tensor>(source)) {
    const Tensor value = nb::cast<Tensor>(source);
    (void)value.type();  // an Error if its recording has ended
    return value;
  }
  if (nb::ndarray_check(source)) {
    Graph* graph = Recording::tracer("an array").number(0, python_line()).graph;
    const Converted values = convert(source, {}, python_line().text() + ": an array");
    return literal(*graph, values.type, values.bytes().data(), python_line());
  }
  return Recording::tree("a parameter").tensor(source);
}

At Operand::number() const {
  const At x = at();
  return is_float(x.value.type().dtype) ? x : At(cast(x, DType::kF32), x.where);
}

void add_tensors(nb::module_& module) {
  nb::class_<Tensor> tensor(module, "Tensor",
      "A value of the graph that is being recorded. It has a shape and no numbers: numbers exist when the graph runs. "
      "Arithmetic broadcasts as NumPy's.");
  add_methods(tensor);
  tensor.def("__repr__", [](nb::handle x) -> std::string {
    try {
      return "linnet.Tensor(" + nb::cast<Tensor>(x).type().text() + ")";
    } catch (const Error&) {
      return "linnet.Tensor(of a recording that has ended)";
    }
  });
  tensor.def("__len__", [](Operand x) { return x.tensor().dim(0); });
  nb::class_<ParameterSource> parameter(module, "Parameter",
      "An array that training changes, as an attribute of a Module. In a loss it stands for its value.");
  add_methods(parameter);
  parameter.def_prop_ro(
      "shape", [](const ParameterSource& p) { return to_tuple(p.shape); },
      nb::sig("def shape(self) -> tuple[int, ...]"), "The sizes of the axes.");
  parameter.def("__deepcopy__", [](const ParameterSource& p, nb::handle) { return ParameterSource(p); });
  parameter.def("__repr__", [](const ParameterSource& p) { return "linnet.Parameter(" + p.shape.text() + ")"; });
  nb::class_<ParameterOf> part(module, "LayerParameter", "A parameter of a layer, such as `layer.weight`.");
  add_methods(part);
  part.def("__init__", [](ParameterOf* self, nb::object layer, std::string name) {
    new (self) ParameterOf{std::move(layer), std::move(name)};
  });
  part.def("__repr__", [](const ParameterOf& p) { return "linnet.LayerParameter(" + p.name + ")"; });
}
}  // namespace linnet::python
