// Ops implemented by Python functions.
#include <linnet/error.h>
#include <linnet/own_op.h>
#include <linnet/testing.h>
#include <cstring>
#include "api/python/python.h"
#include "base/fail.h"

namespace linnet::python {
namespace {
// The op registry outlives Python: what it refers to is never freed.
nb::handle immortal(const nb::object& object) { return object.inc_ref(); }

nb::list list_of(std::span<const Tensor> tensors) {
  nb::list found;
  for (const Tensor& tensor : tensors) found.append(tensor.defined() ? nb::cast(tensor) : nb::none());
  return found;
}

std::vector<Tensor> tensors_of(const nb::object& result, const char* what) {
  std::vector<Tensor> found;
  const nb::tuple many =
      PyTuple_Check(result.ptr()) || PyList_Check(result.ptr()) ? nb::tuple(result) : nb::make_tuple(result);
  for (const nb::handle value : many) {
    Operand operand{value};
    if (value.is_none()) found.emplace_back();
    else if (nb::try_cast(value, operand)) found.push_back(operand.tensor());
    else fail_user(what, " of an op returns tensors");
  }
  return found;
}

// Copies, as Python may keep the arrays.
nb::list copies_of(std::span<const OpArray> arrays, bool writable) {
  nb::list found;
  for (const OpArray& array : arrays) {
    const auto* bytes = static_cast<const std::byte*>(array.data);
    found.append(numpy_copy({bytes, array.type.bytes()}, array.type, writable));
  }
  return found;
}

OpDefinition definition_of(const std::string& name, const nb::object& kernel, const nb::object& decompose,
    const nb::object& gradient, const nb::object& infer) {
  const nb::handle run = immortal(kernel), compose = immortal(decompose);
  OpDefinition definition{.name = name};
  definition.infer = [](const OpTypes& types) { return std::vector<TensorType>{types.in[0]}; };
  if (!infer.is_none())
    definition.infer = [call = immortal(infer)](const OpTypes& types) {
      const nb::gil_scoped_acquire gil;
      nb::list in;
      for (const TensorType& type : types.in) in.append(to_tuple(type));
      std::vector<TensorType> out;
      for (const nb::handle type : nb::cast<nb::sequence>(call(*nb::tuple(in)))) out.push_back(to_type(type));
      return out;
    };
  definition.decompose = [compose](const OpOperands& op) {
    const nb::gil_scoped_acquire gil;
    return tensors_of(compose(*nb::tuple(list_of(op.in))), "decompose()");
  };
  if (!gradient.is_none())
    definition.gradient = [call = immortal(gradient)](const OpGradient& op) {
      const nb::gil_scoped_acquire gil;
      return tensors_of(call(list_of(op.in), list_of(op.out), list_of(op.out_grad)), "gradient()");
    };
  definition.kernel = [run](const OpCall& op) {
    const nb::gil_scoped_acquire gil;
    const nb::list out = copies_of(op.out, true);
    run(*nb::tuple(copies_of(op.in, false)), *nb::tuple(out));
    for (size_t i = 0; i < op.out.size(); ++i)
      std::memcpy(op.out[i].data, nb::cast<AnyArray>(out[i]).data(), op.out[i].type.bytes());
  };
  return definition;
}

std::vector<std::string> check(
    const nb::object& build, const std::vector<std::vector<int64_t>>& shapes, bool differentiate) {
  testing::OpCase op;
  for (const std::vector<int64_t>& shape : shapes) op.inputs.push_back({.shape = to_shape(shape)});
  op.build = [&](const std::vector<Tensor>& in) {
    const nb::gil_scoped_acquire gil;
    return tensors_of(build(*nb::tuple(list_of(in))), "the function");
  };
  op.differentiate = differentiate;
  const nb::gil_scoped_release free;
  return testing::check_op(op);
}
}  // namespace

void add_own_op(nb::module_& module) {
  nb::class_<OwnOp>(module, "OwnOp",
      "An op of the program: kernel(*inputs, *outputs) fills NumPy arrays, decompose(*tensors) says the "
      "same by other ops, gradient(inputs, outputs, output_gradients) gives a tensor or None for each "
      "input, infer(*types) the (dtype, shape) of each output (default: those of the first input).")
      .def(
          "__init__",
          [](OwnOp* self, const std::string& name, nb::object kernel, nb::object decompose, nb::object gradient,
              nb::object infer) {
            for (const nb::object& function : {kernel, decompose})
              if (!PyCallable_Check(function.ptr()))
                fail_user("an op has a kernel and a decomposition, which are functions");
            new (self) OwnOp(definition_of(name, kernel, decompose, gradient, infer));
          },
          "name"_a, nb::kw_only(), "kernel"_a, "decompose"_a, "gradient"_a = nb::none(), "infer"_a = nb::none())
      .def(
          "__call__",
          [](const OwnOp& self, const nb::args& operands) -> nb::object {
            std::vector<Tensor> rest;
            for (const nb::handle operand : operands) rest.push_back(nb::cast<Operand>(operand).tensor());
            if (rest.empty()) fail_user("an op is called with at least one tensor");
            const At first(rest.front(), python_line());
            rest.erase(rest.begin());
            const std::vector<Tensor> results = self.all(first, rest);
            return results.size() == 1 ? nb::cast(results[0]) : nb::object(nb::tuple(list_of(results)));
          },
          nb::sig("def __call__(self, *operands: Tensor | Parameter | LayerParameter) -> typing.Any"),
          "Records the op: a tensor, or a tuple of several results.");
  module.def("check_op", &check, "function"_a, "shapes"_a, "differentiate"_a = true,
      "Checks function(*tensors) for random float32 inputs of these shapes: gradients against finite "
      "differences, the kernel against the decomposition, 1 to 3 threads. A line for each problem.");
}
}  // namespace linnet::python
