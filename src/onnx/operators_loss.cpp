// Losses of classes: the negative log likelihood of targets [N, d1, ...] under scores [N, C, d1, ...].
#include <cmath>

#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "onnx/compose.h"
#include "onnx/operators.h"

namespace linnet {
namespace {

using compose::elementwise;
using compose::Number;

// The loss of log probabilities [..., C] and f64 targets [...].
Tensor likelihood_loss(OnnxCall& call, Tensor log_probabilities, Tensor targets, const Shape& shape) {
  const int64_t classes = log_probabilities.dim(-1), rows = targets.shape().elements();
  const double ignored = static_cast<double>(call.integer("ignore_index", -1));
  const bool ignores = call.has_attribute("ignore_index");
  const DType dtype = log_probabilities.type().dtype;
  // 1 where a row's target is the class, [rows, C]; a target that is ignored has none.
  const Tensor chosen = elementwise(
      call, {reshape(targets, {rows, 1}), call.locations(classes, DType::kF64)}, [=](Number target, Number c) {
        return ignores ? select(equal(target, ignored), 0, equal(target, c)) : equal(target, c);
      });
  Tensor weights = cast(chosen, dtype);
  if (call.has(2)) weights = weights * call.tensor(2, dtype);
  // Where the weight is 0 a class of probability 0 counts for nothing.
  const Tensor weighted =
      elementwise(call, {weights, reshape(log_probabilities, {rows, classes})},
                  [](Number weight, Number x) { return select(equal(weight, 0), 0, -(weight * x)); });
  const Tensor losses = compose::sum_last(weighted);  // [rows, 1]
  const std::string reduction = call.text("reduction", "mean");
  if (reduction == "none") return reshape(losses, shape);
  const Tensor sum = sum_to(reshape(losses, {rows}), {});
  if (reduction == "sum") return sum;
  if (reduction != "mean") call.fail("reduction \"" + reduction + "\"");
  const Tensor total = sum_to(reshape(weights, {rows * classes}), {});
  return elementwise(call, {sum, total}, [](Number sum, Number total) { return sum / total; });
}

void check_shapes(const OnnxCall& call) {
  const Shape scores = call.shape(), targets = call.shape(1);
  bool fit = scores.rank() >= 2 && targets.rank() == scores.rank() - 1;
  for (int axis = 0; fit && axis < targets.rank(); ++axis) fit = targets[axis] == scores[axis == 0 ? 0 : axis + 1];
  if (!fit) call.fail("scores of shape " + scores.text() + " and targets of shape " + targets.text());
}

void negative_log_likelihood_loss(OnnxCall& call) {
  check_shapes(call);
  call.set(likelihood_loss(call, compose::axis_to_end(call.tensor(0), 1), call.tensor(1, DType::kF64), call.shape(1)));
}

void softmax_cross_entropy_loss(OnnxCall& call) {
  check_shapes(call);
  const Tensor scores = compose::axis_to_end(call.tensor(0), 1);
  const Tensor most = compose::fold_last(scores, compose::maximum);
  const Tensor centered = elementwise(call, {scores, most}, [](Number x, Number most) { return x - most; });
  const Tensor log_probabilities = elementwise(call, {centered, compose::sum_last(exp(centered))},
                                               [](Number x, Number sum) { return x - log(sum); });
  call.set(likelihood_loss(call, log_probabilities, call.tensor(1, DType::kF64), call.shape(1)));
  if (call.is_wanted(1)) call.set(1, compose::axis_from_end(log_probabilities, 1), call.element());
}

}  // namespace

OnnxOperatorRows loss_operators() {
  return {
      {"NegativeLogLikelihoodLoss", negative_log_likelihood_loss},
      {"SoftmaxCrossEntropyLoss", softmax_cross_entropy_loss},
  };
}

}  // namespace linnet
