// linnet.Tensor: the handle of a value in a graph, with operators.
#include <linnet/error.h>
#include <linnet/math.h>
#include <linnet/ops.h>

#include "api/python/python.h"
#include "api/python/tree.h"

namespace nanobind::detail {

bool type_caster<linnet::python::Operand>::from_python(handle source, uint8_t, cleanup_list*) noexcept {
  value.source = source;
  using namespace linnet::python;
  return nb::isinstance<linnet::Tensor>(source) || nb::isinstance<ParameterSource>(source) ||
         nb::isinstance<ParameterOf>(source);
}

}  // namespace nanobind::detail

namespace linnet::python {
namespace {

int64_t axis_of(const Tensor& x, int64_t axis) {
  const int rank = x.shape().rank();
  if (axis < -rank || axis >= rank)
    throw Error(ErrorKind::kShape, python_line().text() + ": a tensor of shape " + x.shape().text() + " has no axis " +
                                       std::to_string(axis));
  return axis < 0 ? axis + rank : axis;
}

// One entry of an index, which takes an axis or adds one: x[2], x[1:5], x[None].
struct Cut {
  int64_t start = 0, size = 0;
  bool drops = false;
};

Cut cut_of(nb::handle index, int64_t size, int axis) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::kShape, python_line().text() + ": axis " + std::to_string(axis) + " of " +
                                       std::to_string(size) + " elements " + what);
  };
  if (PySlice_Check(index.ptr())) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(index.ptr(), &start, &stop, &step) != 0) throw nb::python_error();
    const Py_ssize_t count = PySlice_AdjustIndices(size, &start, &stop, step);
    if (step != 1) refuse("is sliced by a step other than 1");
    if (count < 1) refuse("is sliced to nothing");
    return {start, count, false};
  }
  int64_t at = 0;
  if (!nb::try_cast(index, at))
    throw Error(ErrorKind::kShape, python_line().text() + ": a tensor is indexed by integers, slices, None and ...; " +
                                       "gather(x, ids) looks rows up, where(condition, a, b) chooses elements");
  if (at < -size || at >= size) refuse("has no number " + std::to_string(at));
  return {at < 0 ? at + size : at, 1, true};
}

Tensor item(Tensor x, nb::handle given) {
  const nb::tuple indices = PyTuple_Check(given.ptr()) ? nb::borrow<nb::tuple>(given) : nb::make_tuple(given);
  const int rank = x.shape().rank();
  int used = 0;
  for (const nb::handle index : indices) used += !index.is_none() && index.ptr() != Py_Ellipsis;
  if (used > rank)
    throw Error(ErrorKind::kShape, python_line().text() + ": a tensor of shape " + x.shape().text() +
                                       " has fewer axes than " + std::to_string(used));
  std::vector<int64_t> sizes;
  int axis = 0;
  const auto keep = [&](int count) {
    for (; count > 0; --count) sizes.push_back(x.shape()[axis++]);
  };
  for (const nb::handle index : indices) {
    if (index.is_none()) {
      sizes.push_back(1);
    } else if (index.ptr() == Py_Ellipsis) {
      keep(rank - used);
    } else {
      const int64_t size = x.shape()[axis];
      const Cut cut = cut_of(index, size, axis);
      if (cut.size != size) x = slice(At(x, python_line()), axis, cut.start, cut.size);
      if (!cut.drops) sizes.push_back(cut.size);
      ++axis;
    }
  }
  keep(rank - axis);
  return to_shape(sizes) == x.shape() ? x : reshape(At(x, python_line()), to_shape(sizes));
}

// Sizes from reshape(2, -1) or reshape((2, -1)); -1 is what the other sizes leave.
Shape wanted_shape(const Tensor& x, const nb::args& given) {
  nb::object sizes = given;
  if (given.size() == 1 && nb::isinstance<nb::sequence>(given[0])) sizes = given[0];
  std::vector<int64_t> wanted;
  for (const nb::handle size : sizes) wanted.push_back(nb::cast<int64_t>(size));
  int64_t known = 1, *open = nullptr;
  for (int64_t& size : wanted)
    if (size == -1 && !open)
      open = &size;
    else
      known *= size;
  if (open) *open = known > 0 && x.shape().elements() % known == 0 ? x.shape().elements() / known : 0;
  return to_shape(wanted);
}

std::vector<int> orders_of(const nb::args& given) {
  nb::object order = given;
  if (given.size() == 1 && nb::isinstance<nb::sequence>(given[0])) order = given[0];
  std::vector<int> found;
  for (const nb::handle axis : order) found.push_back(nb::cast<int>(axis));
  return found;
}

std::string text_of(const Tensor& x) { return "linnet.Tensor(" + x.type().text() + ")"; }

template <class Class>
void add_operators(Class& tensor) {
  const auto both = [&](const char* name, const char* reversed, auto tensors, auto number, auto number_first) {
    tensor.def(
        name, [tensors](Operand a, Operand b) { return Tensor(tensors(a.at(), b.tensor())); }, nb::is_operator(),
        nb::arg("other"));
    tensor.def(
        name, [number](Operand a, double b) { return Tensor(number(a.at(), b)); }, nb::is_operator(), nb::arg("other"));
    tensor.def(
        reversed, [number_first](Operand a, double b) { return Tensor(number_first(b, a.at())); }, nb::is_operator(),
        nb::arg("other"));
  };
  both(
      "__add__", "__radd__", [](At a, Tensor b) { return a + b; }, [](At a, double b) { return a + b; },
      [](double a, At b) { return a + b; });
  both(
      "__sub__", "__rsub__", [](At a, Tensor b) { return a - b; }, [](At a, double b) { return a - b; },
      [](double a, At b) { return a - b; });
  both(
      "__mul__", "__rmul__", [](At a, Tensor b) { return a * b; }, [](At a, double b) { return a * b; },
      [](double a, At b) { return a * b; });
  both(
      "__truediv__", "__rtruediv__", [](At a, Tensor b) { return a / b; }, [](At a, double b) { return a / b; },
      [](double a, At b) { return a / b; });
  tensor.def(
      "__matmul__", [](Operand a, Operand b) { return matmul(a.at(), b.tensor()); }, nb::is_operator(),
      nb::arg("other"), "The matrix product [..., M, K] @ [K, N] or [..., M, K] @ [..., K, N].");
  tensor.def("__neg__", [](Operand x) { return -x.at(); });
  tensor.def("__abs__", [](Operand x) { return linnet::abs(x.at()); });
  tensor.def(
      "__pow__", [](Operand x, double exponent) { return exponent == 2 ? square(x.at()) : pow(x.at(), exponent); },
      nb::is_operator(), nb::arg("exponent"));
  tensor.def(
      "__getitem__", [](Operand x, nb::object index) { return item(x.tensor(), index); }, nb::arg("index"),
      "Part of the tensor by integers, slices of step 1, None and `...`.");
  tensor.def("__bool__", [](nb::handle) -> bool {
    throw Error(ErrorKind::kUser, python_line().text() +
                                      ": a tensor has no numbers while the loss is recorded, so `if` cannot ask it; "
                                      "where(condition, a, b) chooses by element");
  });
  tensor.def("__iter__", [](nb::handle) -> nb::object {
    throw Error(ErrorKind::kUser,
                python_line().text() + ": a tensor cannot be iterated; split(x, axis, sizes) cuts it");
  });
  tensor.attr("__array_ufunc__") = nb::none();  // NumPy leaves operators to us
}

template <class Class>
void add_methods(Class& tensor) {
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
      .def_prop_ro(
          "T",
          [](Operand x) {
            const Tensor value = x.tensor();
            std::vector<int> order;
            for (int axis = value.shape().rank(); axis-- > 0;) order.push_back(axis);
            return permute(At(value, python_line()), order);
          },
          "The axes in the opposite order.")
      .def(
          "reshape",
          [](Operand x, const nb::args& shape) {
            const Tensor value = x.tensor();
            return reshape(At(value, python_line()), wanted_shape(value, shape));
          },
          nb::sig("def reshape(self, *shape: int | typing.Sequence[int]) -> Tensor"),
          "The same elements in another shape; one size may be -1.")
      .def(
          "permute", [](Operand x, const nb::args& order) { return permute(x.at(), orders_of(order)); },
          nb::sig("def permute(self, *order: int | typing.Sequence[int]) -> Tensor"),
          "Axes in another order: axis i of the result is axis order[i].")
      .def(
          "transpose",
          [](Operand x, int64_t first, int64_t second) {
            const Tensor value = x.tensor();
            std::vector<int> order;
            for (int axis = 0; axis < value.shape().rank(); ++axis) order.push_back(axis);
            std::swap(order[static_cast<size_t>(axis_of(value, first))],
                      order[static_cast<size_t>(axis_of(value, second))]);
            return permute(At(value, python_line()), order);
          },
          nb::arg("first"), nb::arg("second"), "Two axes exchanged.")
      .def(
          "astype", [](Operand x, nb::object dtype) { return cast(x.at(), to_dtype(dtype)); }, nb::arg("dtype"),
          "The elements as another type; floats are cut towards zero.");
  const auto reduce = [&](const char* name, auto all, auto one, const char* doc) {
    tensor.def(
        name,
        [all, one](Operand x, std::optional<int> axis, bool keepdims) {
          const Tensor value = x.tensor();
          if (!axis) return all(At(value, python_line()));
          const Tensor reduced = one(At(value, python_line()), *axis);
          if (!keepdims) return reduced;
          Shape shape = value.shape();
          shape.set(*axis, 1);
          return reshape(At(reduced, python_line()), shape);
        },
        nb::arg("axis") = nb::none(), nb::arg("keepdims") = false, doc);
  };
  reduce(
      "sum", [](At x) { return sum(x); }, [](At x, int axis) { return sum(x, axis); },
      "The sum of all elements, or along an axis.");
  reduce(
      "mean", [](At x) { return mean(x); }, [](At x, int axis) { return mean(x, axis); },
      "The mean of all elements, or along an axis.");
  const auto extreme = [](Tensor (*one)(At, int)) {
    return [one](At x) { return one(At(reshape(x, {x.value.shape().elements()}), x.where), 0); };
  };
  reduce(
      "max", extreme(&linnet::max), [](At x, int axis) { return linnet::max(x, axis); },
      "The largest element of all, or along an axis.");
  reduce(
      "min", extreme(&linnet::min), [](At x, int axis) { return linnet::min(x, axis); },
      "The smallest element of all, or along an axis.");
}

}  // namespace

Tensor Operand::tensor() const {
  if (nb::isinstance<Tensor>(source)) {
    const Tensor value = nb::cast<Tensor>(source);
    (void)value.type();  // an Error where the recording has ended
    return value;
  }
  return Recording::tree("a parameter").tensor(source);
}

void add_tensors(nb::module_& module) {
  nb::class_<Tensor> tensor(module, "Tensor",
                            "A value of the graph that is being recorded. It has a shape and no numbers: numbers exist "
                            "when the graph runs. Arithmetic broadcasts where one shape is a scalar, a suffix, or a "
                            "prefix followed by ones of the other.");
  add_operators(tensor);
  add_methods(tensor);
  tensor.def("__repr__", [](nb::handle x) -> std::string {
    try {
      return text_of(nb::cast<Tensor>(x));
    } catch (const Error&) {
      return "linnet.Tensor(of a recording that has ended)";
    }
  });
  tensor.def("__len__", [](Operand x) { return x.tensor().dim(0); });

  nb::class_<ParameterSource> parameter(
      module, "Parameter",
      "An array that training changes, as an attribute of a Module. In a loss it stands for its value.");
  add_operators(parameter);
  parameter.def_prop_ro(
      "shape", [](const ParameterSource& p) { return to_tuple(p.shape); },
      nb::sig("def shape(self) -> tuple[int, ...]"), "The sizes of the axes.");
  parameter.def_prop_ro(
      "T",
      [](Operand x) {
        return permute(x.at(), {1, 0});
      },
      "The transposed matrix.");
  parameter.def("__repr__", [](const ParameterSource& p) { return "linnet.Parameter(" + p.shape.text() + ")"; });
  nb::class_<ParameterOf> part(module, "LayerParameter", "A parameter of a layer, such as `layer.weight`.");
  add_operators(part);
  part.def_prop_ro(
      "shape", [](Operand x) { return to_tuple(x.tensor().shape()); }, nb::sig("def shape(self) -> tuple[int, ...]"),
      "The sizes of the axes.");
  part.def_prop_ro(
      "T",
      [](Operand x) {
        return permute(x.at(), {1, 0});
      },
      "The transposed matrix.");
  part.def(
      "__init__",
      [](ParameterOf* self, nb::object layer, std::string name) {
        new (self) ParameterOf{std::move(layer), std::move(name)};
      },
      nb::arg("layer"), nb::arg("name"));
  part.def("__repr__", [](const ParameterOf& p) { return "linnet.LayerParameter(" + p.name + ")"; });
}

}  // namespace linnet::python
