#include <linnet/error.h>
#include <linnet/loss.h>
#include <linnet/losses.h>
#include <linnet/math.h>
#include <linnet/ops.h>
#include <linnet/own_op.h>
#include <linnet/random.h>
#include <linnet/testing.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/variant.h>
#include <array>
#include <cstring>
#include <variant>
#include "api/python/python.h"
#include "api/python/tree.h"
#include "base/fail.h"
#include "engine/ops/own/own.h"

namespace linnet::python {
namespace {
// Turns a function of tensors into one of operands that records the calling Python line.
template <class Argument> using GivenAs = std::conditional_t<std::is_same_v<Argument, Tensor>, Operand, Argument>;

Tensor value_of(const Operand& operand) { return operand.tensor(); }
template <class Argument> const Argument& value_of(const Argument& argument) { return argument; }

template <class Result, class... Rest> auto recorded(Result (*function)(At, Rest...)) {
  return [function](Operand first, GivenAs<Rest>... rest) { return function(first.at(), value_of(rest)...); };
}

void add_unary(nb::module_& module) {
  const Row<Tensor (*)(At)> unary[] = {
      {"exp", linnet::exp, "e^x"},
      {"log", linnet::log, "The natural logarithm."},
      {"sqrt", linnet::sqrt, "The square root."},
      {"rsqrt", rsqrt, "1 / sqrt(x)"},
      {"abs", linnet::abs, "|x|"},
      {"square", square, "x * x"},
      {"sin", linnet::sin, "The sine, of radians."},
      {"cos", linnet::cos, "The cosine, of radians."},
      {"erf", linnet::erf, "The error function."},
      {"relu", relu, "max(x, 0)"},
      {"tanh", linnet::tanh, "The hyperbolic tangent."},
      {"sigmoid", sigmoid, "1 / (1 + e^-x)"},
      {"silu", silu, "x * sigmoid(x), also called swish."},
      {"gelu", gelu, "x * Phi(x) with the exact error function."},
      {"gelu_tanh", gelu_tanh, "The approximation of gelu by a tanh, which GPT-2 uses."},
      {"softplus", softplus, "log(1 + e^x)"},
      {"logical_not", logical_not, "1 where x is 0, else 0; no gradient."},
      {"stop_gradient", stop_gradient, "x, through which no gradient flows back (torch's detach)."},
      {"global_avg_pool", global_avg_pool, "The mean of all positions: [N, H, W, C] -> [N, C]."},
  };
  for (const auto& row : unary) module.def(row.name, recorded(row.function), "x"_a, row.doc);
  const Row<Tensor (*)(At, int)> along[] = {
      {"softmax", softmax, "Softmax along an axis."},
      {"log_softmax", log_softmax, "log(softmax(x)) along an axis."},
      {"logsumexp", log_sum_exp, "log(sum(exp(x))) along an axis, which goes."},
      {"argmax", argmax, "The index of the largest element along an axis, which goes; int32."},
  };
  for (const auto& row : along) module.def(row.name, recorded(row.function), "x"_a, "axis"_a = -1, row.doc);
  const Row<Tensor (*)(At, bool)> ordered[] = {
      {"sort", sort, "The elements along the last axis in order."},
      {"argsort", argsort, "The indices of the elements along the last axis in their order; int32, no gradient."},
  };
  for (const auto& row : ordered) module.def(row.name, recorded(row.function), "x"_a, "descending"_a = false, row.doc);
  module.def("leaky_relu", recorded(leaky_relu), "x"_a, "slope"_a = 0.01, "x where x > 0, else slope * x.");
  module.def("elu", recorded(elu), "x"_a, "alpha"_a = 1.0, "x where x > 0, else alpha * (e^x - 1).");
  module.def("selu", recorded(selu), "x"_a, "1.0507 * elu(x, 1.6733) (Klambauer et al. 2017).");
}

// A tensor or a number, which has the other operand's type.
using Either = std::variant<Operand, double>;

Tensor tensor_of(const Either& given, const Either& other) {
  if (const Operand* operand = std::get_if<Operand>(&given)) return operand->number().value;
  const Operand* beside = std::get_if<Operand>(&other);
  if (!beside) fail_user("one of two operands is a tensor");
  return number_beside(beside->number(), std::get<double>(given));
}

std::vector<Tensor> tensors_of(const std::vector<Operand>& operands) { return mapped(operands, &Operand::tensor); }

void add_binary(nb::module_& module) {
  const Row<Tensor (*)(At, Tensor)> binary[] = {
      {"maximum", maximum, "The larger of two, elementwise."},
      {"minimum", minimum, "The smaller of two, elementwise."},
      {"greater", greater, "1 where a > b, else 0, as the operator; no gradient."},
      {"equal", equal, "1 where a == b, else 0, as the operator; no gradient."},
      {"logical_and", logical_and, "1 where neither is 0, else 0; no gradient."},
      {"logical_or", logical_or, "1 where not both are 0, else 0; no gradient."},
  };
  for (const auto& row : binary)
    module.def(
        row.name,
        [function = row.function](
            const Either& a, const Either& b) { return function(At(tensor_of(a, b), python_line()), tensor_of(b, a)); },
        "a"_a, "b"_a, row.doc);
  module.def("matmul", recorded(matmul), "a"_a, "b"_a, "trans_a"_a = false, "trans_b"_a = false,
      "The matrix product: a [..., M, K] with b [K, N] or [..., K, N]. trans_a: a is [..., K, M]; trans_b: b is "
      "[..., N, K].");
  module.def(
      "where",
      [](Operand condition, const Either& a, const Either& b) {
        return where(condition.number(), tensor_of(a, condition), tensor_of(b, condition));
      },
      "condition"_a, "a"_a, "b"_a, "a where `condition` is not 0, else b, elementwise.");
  module.def(
      "einsum",
      [](const std::string& equation, const nb::args& operands) {
        return einsum(equation, tensors_of(nb::cast<std::vector<Operand>>(operands)), python_line());
      },
      nb::sig("def einsum(equation: str, *operands: Tensor | Parameter | LayerParameter | numpy.ndarray) -> Tensor"),
      "Products summed over letters, as NumPy's: einsum(\"...ij,jk->...ik\", a, b). Each letter once in an operand.");
  module.def("clamp", recorded(clamp), "x"_a, "low"_a, "high"_a, "x where low <= x <= high, else the nearer bound.");
}

void add_movement(nb::module_& module) {
  module.def(
      "concat",
      [](const std::vector<Operand>& parts, int axis) { return concat(tensors_of(parts), axis, python_line()); },
      "parts"_a, "axis"_a = 0, "Tensors one behind another along an axis (torch's cat).");
  module.def(
      "split", [](Operand x, std::vector<int64_t> sizes, int axis) { return split(x.at(), axis, std::move(sizes)); },
      "x"_a, "sizes"_a, "axis"_a = -1, "Parts of these sizes along an axis.");
  module.def(
      "chunk", [](Operand x, int parts, int axis) { return split_evenly(x.at(), axis, parts); }, "x"_a, "parts"_a,
      "axis"_a = -1, "Parts of equal size along an axis.");
  module.def(
      "broadcast_to",
      [](Operand x, const std::vector<int64_t>& shape) { return broadcast_to(x.at(), to_shape(shape)); }, "x"_a,
      "shape"_a, "x repeated to `shape`.");
  module.def("gather", recorded(gather), "x"_a, "ids"_a,
      "Rows of x [V, ...] by their numbers: ids int32 [...] -> [ids' axes, x's axes behind the first].");
  module.def("embedding", recorded(embedding), "table"_a, "ids"_a, "padding"_a = -1,
      "Rows of a table: [V, D], ids int32 [...] -> [..., D].");
  module.def("cumsum", recorded(cumsum), "x"_a, "axis"_a, "reverse"_a = false,
      "Sums of all elements up to each along an axis; of those from it on where `reverse`.");
  module.def("tril", recorded(tril), "x"_a, "diagonal"_a = 0, "x [..., rows, columns] with zeros above a diagonal.");
  module.def("pad", recorded(pad), "x"_a, "axis"_a, "before"_a, "after"_a, "value"_a = 0.0,
      "x with so many elements of `value` before and behind it along an axis.");
  module.def("top_k", recorded(top_k), "x"_a, "count"_a,
      "The largest elements along the last axis, the largest first, and their indices: both [..., count].");
  module.def("scatter_add", recorded(scatter_add), "values"_a, "ids"_a, "rows"_a,
      "Rows added up by number: values [..., D], ids int32 [...] -> [rows, D].");
  module.def("sequence_mask", recorded(sequence_mask), "lengths"_a, "size"_a,
      "int32 [...] -> float32 [..., size]: 1 at positions below the length, 0 behind.");
  module.def(
      "gradients", [](Operand y, const std::vector<Operand>& x) { return gradients(y.at(), tensors_of(x)); }, "y"_a,
      "x"_a,
      "The derivatives of a scalar y by tensors or parameters, as tensors of the graph; zeros where y does not "
      "follow from one.");
  module.def(
      "arange", [](int64_t count) { return arange(count, DType::kF32, python_line()); }, "count"_a,
      "0, 1, ... count - 1 as float32.");
  module.def(
      "random_normal", [](const std::vector<int64_t>& shape) { return random_normal(to_shape(shape), python_line()); },
      "shape"_a, "float32 from N(0, 1), drawn anew in each step from the learner's seed and the step; no gradient.");
  module.def(
      "random_uniform",
      [](const std::vector<int64_t>& shape, double low, double high) {
        return random_uniform(to_shape(shape), low, high, python_line());
      },
      "shape"_a, "low"_a = 0.0, "high"_a = 1.0, "The same, uniform in [low, high).");
  module.def(
      "one_hot", [](Operand targets, int64_t classes) { return one_hot(targets.at(), classes, DType::kF32); },
      "targets"_a, "classes"_a, "int32 [...] -> float32 [..., classes].");
  module.def("mask_targets", recorded(mask_targets), "targets"_a, "lengths"_a,
      "targets int32 [B, T] that are -1 at and past lengths int32 [B].");
  module.def(
      "full",
      [](const std::vector<int64_t>& shape, double value) {
        for (const int64_t size : shape)
          if (size < 1) throw Error(ErrorKind::kShape, python_line().text() + ": full(): sizes are at least 1");
        return Recording::tracer("full()").full({DType::kF32, to_shape(shape)}, value, python_line());
      },
      "shape"_a, "value"_a, "A tensor with the same number everywhere.");
  module.def(
      "is_training", [] { return Recording::tracer("is_training()").training(); },
      "Whether the graph that is recorded trains: dropout is active, and buffers are updated.");
}

void add_images(nb::module_& module) {
  module.def("conv2d", recorded(conv2d), "x"_a, "weight"_a, "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1,
      "groups"_a = 1, "Images [N, H, W, C] with filters [O, R, S, C / groups] -> [N, H', W', O].");
  module.def("conv1d", recorded(conv1d), "x"_a, "weight"_a, "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1,
      "groups"_a = 1, "Sequences [N, L, C] with filters [O, K, C / groups] -> [N, L', O].");
  module.def("conv_transpose2d", recorded(conv_transpose2d), "x"_a, "weight"_a, "stride"_a = 1, "padding"_a = 0,
      "output_padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      "The transposed convolution: [N, H, W, C] with filters [C, R, S, O / groups] -> [N, H', W', O].");
  module.def("upsample", recorded(upsample), "x"_a, "factor"_a = 2,
      "Images [N, H, W, C] with each pixel repeated factor x factor times.");
  module.def(
      "resize",
      [](Operand x, int64_t height, int64_t width, bool smooth) {
        return resize(x.at(), height, width, smooth ? Interpolation::kBilinear : Interpolation::kNearest);
      },
      "x"_a, "height"_a, "width"_a, "smooth"_a = true,
      "Images [N, H, W, C] -> [N, height, width, C], bilinear (torch's align_corners=False), or the nearest pixel.");
  module.def("max_pool", recorded(max_pool), "x"_a, "size"_a = 2, "stride"_a = 0,
      "The largest element of each size x size window of [N, H, W, C]; stride 0 is the size.");
  module.def(
      "avg_pool", recorded(avg_pool), "x"_a, "size"_a = 2, "The mean of each size x size window of [N, H, W, C].");
  module.def("scale_images", recorded(scale_images), "x"_a, "mean"_a = std::vector<double>{},
      "deviation"_a = std::vector<double>{},
      "Bytes of images uint8 [..., C] as floats (x / 255 - mean[c]) / deviation[c]; without lists in [0, 1].");
}

void add_norms(nb::module_& module) {
  module.def(
      "layer_norm",
      [](Operand x, std::optional<Operand> weight, std::optional<Operand> bias, double epsilon) {
        return layer_norm(x.at(), or_none(weight), or_none(bias), epsilon);
      },
      "x"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), "epsilon"_a = 1e-5,
      "Normalization over the last axis; weight and bias [D] may be left out.");
  module.def(
      "rms_norm",
      [](Operand x, std::optional<Operand> weight, double epsilon) {
        return rms_norm(x.at(), or_none(weight), epsilon);
      },
      "x"_a, "weight"_a = nb::none(), "epsilon"_a = 1e-6, "x / sqrt(mean(x^2) + epsilon) * weight over the last axis.");
}

// The mean over all elements; if the first axis is the batch's, over samples only, without padding. `of_samples`:
// linnet/losses.h; `whole`: the sum over all elements.
void add_mean_loss(nb::module_& module, const char* name, std::array<const char*, 2> arguments,
    Loss (*of_samples)(Tracer&, At, Tensor), Tensor (*whole)(At, Tensor), const char* doc) {
  module.def(
      name,
      [of_samples, whole](Operand x, Operand y) {
        Tracer& tracer = Recording::tracer("a loss");
        const Shape& shape = x.tensor().shape();
        if (shape.rank() > 0 && shape[0] == tracer.row_mask().dim(0)) return of_samples(tracer, x.at(), y.tensor());
        return Loss{whole(x.at(), y.tensor()), tracer.number(static_cast<double>(shape.elements()), python_line())};
      },
      nb::arg(arguments[0]), nb::arg(arguments[1]), doc);
}

void add_losses(nb::module_& module) {
  nb::class_<Loss>(module, "Loss",
      "The sum of the losses of all samples or tokens of a batch, and how many those are; training "
      "minimizes sum / count.")
      .def(
          "__init__",
          [](Loss* self, Operand sum, std::optional<Operand> count) {
            new (self)
                Loss{sum.tensor(), count ? count->tensor() : Recording::tracer("a loss").number(1, python_line())};
          },
          "sum"_a, "count"_a = nb::none())
      .def_ro("sum", &Loss::sum, "Scalar.")
      .def_ro("count", &Loss::count, "Scalar.")
      .def(
          "mean", [](const Loss& loss) { return At(loss.sum, python_line()) / loss.count; },
          "sum / count as a tensor, to be added to other losses.");
  module.def(
      "cross_entropy",
      [](Operand logits, Operand targets, double label_smoothing) {
        return Loss{cross_entropy_sum(logits.at(), targets.tensor(), label_smoothing), count_targets(targets.at())};
      },
      "logits"_a, "targets"_a, "label_smoothing"_a = 0.0,
      "The cross-entropy of logits [..., V] and targets int32 [...]; rows with a negative target are left out.");
  module.def(
      "linear_cross_entropy",
      [](Operand hidden, Operand weight, Operand targets, std::optional<Operand> bias, double label_smoothing) {
        return Loss{linear_cross_entropy_sum(hidden.at(), weight.tensor(),
                        bias ? std::optional(bias->tensor()) : std::nullopt, targets.tensor(), label_smoothing),
            count_targets(targets.at())};
      },
      "hidden"_a, "weight"_a, "targets"_a, "bias"_a = nb::none(), "label_smoothing"_a = 0.0,
      "The same of logits = hidden weight^T + bias, which are never whole in memory: hidden [..., D], weight [V, D].");
  add_mean_loss(module, "binary_cross_entropy", {"logits", "targets"}, binary_cross_entropy_loss,
      binary_cross_entropy_sum, "The binary cross-entropy of logits and targets in [0, 1] of one shape.");
  add_mean_loss(
      module, "mse_loss", {"x", "y"}, squared_error_loss,
      [](At x, Tensor y) { return sum(At(square(At(x - y, x.where)), x.where)); },
      "The mean of (x - y)^2 over all elements.");
  add_mean_loss(
      module, "huber_loss", {"x", "y"}, [](Tracer& tracer, At x, Tensor y) { return huber_loss(tracer, x, y); },
      [](At x, Tensor y) { return sum(At(huber(x, y), x.where)); },
      "The mean of d^2 / 2 where |d| < 1, else |d| - 1/2, of d = x - y.");
  add_mean_loss(
      module, "l1_loss", {"x", "y"}, absolute_error_loss,
      [](At x, Tensor y) { return sum(At(linnet::abs(At(x - y, x.where)), x.where)); },
      "The mean of |x - y| over all elements.");
}

// The op registry outlives Python: what it refers to is never freed.
nb::handle immortal(const nb::object& object) { return object.inc_ref(); }

nb::list list_of(std::span<const Tensor> tensors) {
  return to_list_of(
      tensors, [](const Tensor& tensor) -> nb::object { return tensor.defined() ? nb::cast(tensor) : nb::none(); });
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
  return to_list_of(arrays, [&](const OpArray& array) {
    return numpy_copy({static_cast<const std::byte*>(array.data), array.type.bytes()}, array.type, writable);
  });
}

OpDefinition definition_of(const std::string& name, const nb::object& kernel, const nb::object& decompose,
    const nb::object& gradient, const nb::object& infer) {
  const nb::handle run = immortal(kernel), compose = immortal(decompose);
  OpDefinition definition{.name = name};
  definition.infer = [](const OpTypes& types) { return std::vector<TensorType>{types.in[0]}; };
  if (!infer.is_none())
    definition.infer = [call = immortal(infer)](const OpTypes& types) {
      const WithGil gil;
      const nb::list in = to_list_of(types.in, [](const TensorType& type) { return to_tuple(type); });
      return mapped(nb::cast<nb::sequence>(call(*nb::tuple(in))), to_type);
    };
  definition.decompose = [compose](const OpOperands& op) {
    const WithGil gil;
    return tensors_of(compose(*nb::tuple(list_of(op.in))), "decompose()");
  };
  if (!gradient.is_none())
    definition.gradient = [call = immortal(gradient)](const OpGradient& op) {
      const WithGil gil;
      return tensors_of(call(list_of(op.in), list_of(op.out), list_of(op.out_grad)), "gradient()");
    };
  definition.kernel = [run, name](const OpCall& op) {
    const WithGil gil;
    const nb::list out = copies_of(op.out, true);
    const nb::object result = run(*nb::tuple(copies_of(op.in, false)), *nb::tuple(out));
    if (!result.is_none() && !std::ranges::any_of(out, [&](nb::handle filled) { return filled.is(result); }))
      fail_user("the kernel of the op \"", name, "\" returned a ", class_name(result),
          "; it fills its outputs, as in y[...] = x, and returns nothing");
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
    const WithGil gil;
    return tensors_of(build(*nb::tuple(list_of(in))), "the function");
  };
  op.differentiate = differentiate;
  const WithoutGil free;
  return testing::check_op(op);
}
}  // namespace

void add_operations(nb::module_& module) {
  add_unary(module);
  add_binary(module);
  add_movement(module);
  add_images(module);
  add_norms(module);
  add_losses(module);
}

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
            // A notebook's cell runs again: the op of before stays in the learners that have it.
            std::string unused = name;
            for (int i = 2; find_own_op(unused); ++i) unused = name + " " + std::to_string(i);
            new (self) OwnOp(definition_of(unused, kernel, decompose, gradient, infer));
          },
          "name"_a, nb::kw_only(), "kernel"_a, "decompose"_a, "gradient"_a = nb::none(), "infer"_a = nb::none())
      .def("__deepcopy__", [](nb::object self, nb::handle) { return self; })
      .def(
          "__call__",
          [](const OwnOp& self, const nb::args& operands) -> nb::object {
            std::vector<Tensor> rest = tensors_of(nb::cast<std::vector<Operand>>(operands));
            if (rest.empty()) fail_user("an op is called with at least one tensor");
            const At first(rest.front(), python_line());
            rest.erase(rest.begin());
            const std::vector<Tensor> results = self.all(first, rest);
            return results.size() == 1 ? nb::cast(results[0]) : nb::object(nb::tuple(list_of(results)));
          },
          nb::sig("def __call__(self, *operands: Tensor | Parameter | LayerParameter | numpy.ndarray) -> typing.Any"),
          "Records the op: a tensor, or a tuple of several results.");
  module.def("check_op", &check, "function"_a, "shapes"_a, "differentiate"_a = true,
      "Checks function(*tensors) for random float32 inputs of these shapes: gradients against finite "
      "differences, the kernel against the decomposition, 1 to 3 threads. A line for each problem.");
}
}  // namespace linnet::python
