// Matrix products, reductions over axes, softmax and cumulative sums.
#include <algorithm>
#include <limits>
#include "engine/ops/reduce/reduce.h"
#include "onnx/compose.h"
#include "onnx/einsum.h"

namespace linnet {
namespace {
Shape leading(const Shape& shape) { return Shape(shape.sizes().first(shape.rank() - 2)); }

// numpy's matmul for two or more axes.
Tensor product(OnnxCall& call, Tensor a, Tensor b) {
  if (b.shape().rank() == 2) return matmul(a, b);
  const Shape batch = compose::broadcast_shape(call, {leading(a.shape()), leading(b.shape())});
  a = broadcast_to(a, with_axes(batch, {a.dim(-2), a.dim(-1)}));
  b = broadcast_to(b, with_axes(batch, {b.dim(-2), b.dim(-1)}));
  return matmul(a, b);
}

void matmul_operator(OnnxCall& call) {
  if (const auto y = quantized_product(call, call.in(0), call.in(1), false)) return call.set(*y);
  Tensor a = call.tensor(0), b = call.tensor(1);
  const bool row = a.shape().rank() == 1, column = b.shape().rank() == 1;
  if (a.shape().rank() == 0 || b.shape().rank() == 0) call.fail("of a number");
  if (row) a = reshape(a, {1, a.dim(0)});
  if (column) b = reshape(b, {b.dim(0), 1});
  if (a.dim(-1) != b.dim(-2))
    call.fail("shapes ", call.shape(0).text(), " and ", call.shape(1).text(), " do not fit together");
  Tensor y = product(call, a, b);
  if (row || column) {
    Shape shape = leading(y.shape());
    if (!row) shape.push_back(y.dim(-2));
    if (!column) shape.push_back(y.dim(-1));
    y = reshape(y, shape);
  }
  call.set(y);
}

void gemm_operator(OnnxCall& call) {
  const double alpha = call.real("alpha", 1), beta = call.real("beta", 1);
  const bool trans_a = call.flag("transA"), trans_b = call.flag("transB");
  std::optional<Tensor> of_bytes;
  if (!trans_a) of_bytes = quantized_product(call, call.in(0), call.in(1), trans_b);
  Tensor y = of_bytes ? *of_bytes : matmul(call.tensor(0), call.tensor(1), trans_a, trans_b);
  if (alpha != 1) y = y * alpha;
  if (call.has(2) && beta != 0) {
    Tensor c = call.tensor(2);
    if (beta != 1) c = c * beta;
    y = compose::add(call, y, c);
  }
  call.set(y);
}

void einsum(OnnxCall& call) {
  const std::string equation = call.text("equation", "");
  const std::vector<Tensor> operands = mapped(call.operands(), [&](size_t i) { return call.tensor(i); });
  const auto sum = [&](Tensor x, const std::vector<int>& axes) {
    const std::vector<bool> gone = compose::named_axes(call, {axes.begin(), axes.end()}, x.shape().rank());
    Shape kept;
    for (int axis = 0; axis < x.shape().rank(); ++axis)
      if (!gone[axis]) kept.push_back(x.dim(axis));
    return compose::reshaped(compose::reduced(x, gone, sum_to), kept);
  };
  const auto fail = [&](const std::string& problem) { call.fail("\"", equation, "\": ", problem); };
  call.set(Einsum(equation, operands, {compose::move_axes, sum, fail}, SourceLine::current()).compute());
}

enum class Kind { kSum, kMean, kMax, kMin, kProduct, kL1, kL2, kLogSum, kLogSumExp, kSumOfSquares };

// By halves.
Tensor product_last(Tensor x) {
  while (x.dim(-1) > 1) {
    const int64_t size = x.dim(-1), half = size / 2;
    const Tensor a = slice(x, -1, 0, half), b = slice(x, -1, half, half);
    const Tensor product = a.id == b.id ? square(a) : a * b;
    x = size % 2 == 1 ? compose::join({product, slice(x, -1, size - 1, 1)}, x.shape().rank() - 1) : product;
  }
  return x;
}

// The named axes keep the size 1, or come last in one.
Tensor reduced(OnnxCall& call, Tensor x, const std::vector<bool>& axes, Kind kind) {
  const auto of_each = [&](Tensor y, const auto& formula) { return elementwise(call, {y}, formula); };
  const auto minus = [](Number x) { return -x; };
  if (kind == Kind::kMax) return compose::reduced(x, axes, max_to);
  if (kind == Kind::kMin) return of_each(compose::reduced(of_each(x, minus), axes, max_to), minus);
  int64_t count = 1;
  for (int axis = 0; axis < x.shape().rank(); ++axis)
    if (axes[axis]) count *= x.dim(axis);
  if (kind == Kind::kProduct || kind == Kind::kLogSumExp) {
    const Tensor rows = reshape(compose::move_axes(x, named_axes_last(axes)), {x.shape().elements() / count, count});
    return kind == Kind::kProduct ? product_last(rows) : log_sum_exp_last(rows);
  }
  if (kind == Kind::kL1) x = of_each(x, [](Number x) { return abs(x); });
  if (kind == Kind::kL2 || kind == Kind::kSumOfSquares) x = of_each(x, [](Number x) { return x * x; });
  const Tensor sum = compose::reduced(x, axes, sum_to);
  if (kind == Kind::kMean) return of_each(sum, [&](Number x) { return x * (1 / static_cast<double>(count)); });
  if (kind == Kind::kL2) return of_each(sum, [](Number x) { return sqrt(x); });
  if (kind == Kind::kLogSum) return of_each(sum, [](Number x) { return log(x); });
  return sum;
}

// The reduction of no elements.
double of_nothing(OnnxCall& call, Kind kind) {
  if (call.element() == OnnxElement::kBool) return kind == Kind::kMin ? 1 : 0;
  if (kind == Kind::kMax) return -std::numeric_limits<double>::infinity();
  if (kind == Kind::kMin) return std::numeric_limits<double>::infinity();
  if (kind == Kind::kProduct) return 1;
  if (kind == Kind::kLogSum || kind == Kind::kLogSumExp) return -std::numeric_limits<double>::infinity();
  if (kind == Kind::kMean) call.fail("the mean of no elements");
  return 0;
}

void reduce(OnnxCall& call, Kind kind) {
  const Shape shape = call.shape();
  const std::vector<int64_t> given = call.ints_or_list(1, "axes");
  const bool keep = call.flag("keepdims", true), noop = call.flag("noop_with_empty_axes");
  // Without axes, absolute values, squares and so on still apply to each element.
  const std::vector<bool> gone =
      compose::named_axes(call, given.empty() && !noop ? numbers_below<int64_t>(shape.rank()) : given, shape.rank());
  Shape result;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (!gone[axis] || keep) result.push_back(gone[axis] ? 1 : shape[axis]);
  if (shape.elements() == 0)
    return call.set(call.uniform(of_nothing(call, kind), result, traced_dtype(call.element())));
  Tensor y = compose::reshaped(reduced(call, call.tensor(0), gone, kind), result);
  if (is_whole(call.element())) y = elementwise(call, {y}, formula::truncated);
  call.set(y);
}

// Softmax and its kin work on one axis; before opset 13 on all from `axis` on.
void over_axis(OnnxCall& call, const std::function<Tensor(Tensor)>& of_last) {
  const Shape shape = call.shape();
  const bool flat = call.opset() < 13;
  const int axis = call.axis_of(flat ? 1 : -1);
  const Tensor x = call.tensor(0);
  if (flat)
    return call.set(reshape(of_last(reshape(x, {shape.elements(0, axis), shape.elements(axis, shape.rank())})), shape));
  if (axis == shape.rank() - 1) return call.set(of_last(x));
  call.set(compose::axis_from_end(of_last(compose::axis_to_end(x, axis)), axis));
}
void hardmax(OnnxCall& call) {
  // 1 for the first element that reaches the maximum.
  over_axis(call, [&](Tensor x) {
    const int64_t size = x.dim(-1);
    const Tensor most = max_last(x), locations = call.locations(size, x.type().dtype);
    const Tensor candidate = elementwise(call, {x, most, locations}, [=](Number x, Number most, Number location) {
      return select(equal(x, most), location, static_cast<double>(size));
    });
    return elementwise(call, {candidate, max_last(candidate * -1.0)},
        [](Number candidate, Number first) { return equal(candidate, -first); });
  });
}

void cumulative_sum(OnnxCall& call) {
  const int axis = call.axis(static_cast<int64_t>(call.number(1, 0)), call.shape().rank());
  const bool reverse = call.flag("reverse"), exclusive = call.flag("exclusive");
  const Tensor sums = cumsum(call.tensor(0), axis, reverse);
  if (!exclusive || sums.shape().elements() == 0) return call.set(sums);
  const Tensor earlier = slice(sums, axis, reverse ? 1 : 0, sums.dim(axis) - 1);
  call.set(padded(earlier, axis, reverse ? 0 : 1, reverse ? 1 : 0, 0));
}

// Negative log likelihood of f64 targets [...] under log probabilities [..., C].
Tensor likelihood_loss(OnnxCall& call, Tensor log_probabilities, Tensor targets, const Shape& shape) {
  const int64_t classes = log_probabilities.dim(-1), rows = targets.shape().elements();
  const double ignored = static_cast<double>(call.integer("ignore_index", -1));
  const bool ignores = call.has_attribute("ignore_index");
  const DType dtype = log_probabilities.type().dtype;
  // [rows, C]: 1 for the target class; ignored targets have none.
  const Tensor chosen = elementwise(
      call, {reshape(targets, {rows, 1}), call.locations(classes, DType::kF64)}, [=](Number target, Number c) {
        return ignores ? select(equal(target, ignored), 0, equal(target, c)) : equal(target, c);
      });
  Tensor weights = cast(chosen, dtype);
  if (call.has(2)) weights = weights * call.tensor(2, dtype);
  // A weight of 0 hides a class of probability 0.
  const Tensor weighted = elementwise(call, {weights, reshape(log_probabilities, {rows, classes})},
      [](Number weight, Number x) { return select(equal(weight, 0), 0, -(weight * x)); });
  const Tensor losses = sum_last(weighted);  // [rows, 1]
  const std::string reduction = call.text("reduction", "mean");
  if (reduction == "none") return reshape(losses, shape);
  const Tensor sum = sum_to(reshape(losses, {rows}), {});
  if (reduction == "sum") return sum;
  if (reduction != "mean") call.fail("reduction \"", reduction, "\"");
  const Tensor total = sum_to(reshape(weights, {rows * classes}), {});
  return elementwise(call, {sum, total}, [](Number sum, Number total) { return sum / total; });
}

void check_shapes(const OnnxCall& call) {
  const Shape scores = call.shape(), targets = call.shape(1);
  bool fit = scores.rank() >= 2 && targets.rank() == scores.rank() - 1;
  for (int axis = 0; fit && axis < targets.rank(); ++axis) fit = targets[axis] == scores[axis == 0 ? 0 : axis + 1];
  if (!fit) call.fail("scores of shape ", scores.text(), " and targets of shape ", targets.text());
}

void negative_log_likelihood_loss(OnnxCall& call) {
  check_shapes(call);
  call.set(likelihood_loss(call, compose::axis_to_end(call.tensor(0), 1), call.tensor(1, DType::kF64), call.shape(1)));
}

void softmax_cross_entropy_loss(OnnxCall& call) {
  check_shapes(call);
  const Tensor scores = compose::axis_to_end(call.tensor(0), 1);
  const Tensor most = max_last(scores);
  const Tensor centered = elementwise(call, {scores, most}, [](Number x, Number most) { return x - most; });
  const Tensor log_probabilities =
      elementwise(call, {centered, sum_last(exp(centered))}, [](Number x, Number sum) { return x - log(sum); });
  call.set(likelihood_loss(call, log_probabilities, call.tensor(1, DType::kF64), call.shape(1)));
  if (call.is_wanted(1)) call.set(1, compose::axis_from_end(log_probabilities, 1), call.element());
}
}  // namespace

OnnxOperatorRows matrix_operators() {
  const auto reduction = [](Kind kind) { return [=](OnnxCall& call) { reduce(call, kind); }; };
  return {
      {"CumSum", cumulative_sum, "the axis must be known"},
      {"Einsum", einsum, "without repeated letters in a term"},
      {"Gemm", gemm_operator},
      {"Hardmax", hardmax},
      {"LogSoftmax", [](OnnxCall& call) { over_axis(call, [](Tensor x) { return x - log_sum_exp_last(x); }); }},
      {"MatMul", matmul_operator},
      {"NegativeLogLikelihoodLoss", negative_log_likelihood_loss, "", {2}},
      {"ReduceL1", reduction(Kind::kL1)},
      {"ReduceL2", reduction(Kind::kL2)},
      {"ReduceLogSum", reduction(Kind::kLogSum)},
      {"ReduceLogSumExp", reduction(Kind::kLogSumExp)},
      {"ReduceMax", reduction(Kind::kMax)},
      {"ReduceMean", reduction(Kind::kMean)},
      {"ReduceMin", reduction(Kind::kMin)},
      {"ReduceProd", reduction(Kind::kProduct)},
      {"ReduceSum", reduction(Kind::kSum)},
      {"ReduceSumSquare", reduction(Kind::kSumOfSquares)},
      {"Softmax", [](OnnxCall& call) { over_axis(call, [](Tensor x) { return softmax(x); }); }},
      {"SoftmaxCrossEntropyLoss", softmax_cross_entropy_loss, "", {2}},
  };
}
}  // namespace linnet
