// Losses of classes (the negative log likelihood of targets [N, d1, ...] under scores [N, C, d1, ...]), and shifts of
// bits.
#include <cmath>

#include "onnx/compose.h"
#include "onnx/operators.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

using compose::E;
using compose::elementwise;
using compose::Ref;

// f64 [C]: 0, 1, 2, ...
Tensor class_numbers(OnnxCall& call, int64_t classes) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < classes; ++i) numbers.push_back(static_cast<double>(i));
  return call.constant(known_numbers(OnnxElement::kDouble, {classes}, numbers));
}

// The loss of log probabilities [..., C] and f64 targets [...], whose element type in ONNX is `element`.
Tensor likelihood_loss(OnnxCall& call, Tensor log_probabilities, Tensor targets, const Shape& shape) {
  const int64_t classes = log_probabilities.dim(-1), rows = targets.shape().elements();
  const double ignored = static_cast<double>(call.integer("ignore_index", -1));
  const bool ignores = call.has_attribute("ignore_index");
  const DType dtype = log_probabilities.type().dtype;
  // 1 where a row's target is the class, [rows, C]; a target that is ignored has none.
  const Tensor numbers = class_numbers(call, classes);
  const Tensor chosen = elementwise(call, {reshape(targets, {rows, 1}), numbers}, [=](E& e, const std::vector<Ref>& x) {
    const Ref same = e.apply(Scalar::kEqual, x[0], x[1]);
    if (!ignores) return same;
    return e.apply(Scalar::kSelect, e.apply(Scalar::kEqual, x[0], e.constant(ignored)), e.constant(0), same);
  });
  Tensor weights = cast(chosen, dtype);
  if (call.has(2)) weights = weights * call.tensor(2, dtype);
  const Tensor weighted =
      elementwise(call, {weights, reshape(log_probabilities, {rows, classes})}, [](E& e, const std::vector<Ref>& x) {
        // Where the weight is 0 a class of probability 0 counts for nothing.
        return e.apply(Scalar::kSelect, e.apply(Scalar::kEqual, x[0], e.constant(0)), e.constant(0),
                       e.apply(Scalar::kNeg, e.apply(Scalar::kMul, x[0], x[1])));
      });
  const Tensor losses = compose::sum_last(weighted);  // [rows, 1]
  const std::string reduction = call.text("reduction", "mean");
  if (reduction == "none") return reshape(losses, shape);
  const Tensor sum = sum_to(reshape(losses, {rows}), {});
  if (reduction == "sum") return sum;
  if (reduction != "mean") call.fail("reduction \"" + reduction + "\"");
  return elementwise(call, {sum, sum_to(reshape(weights, {rows * classes}), {})},
                     [](E& e, const std::vector<Ref>& x) { return e.apply(Scalar::kDiv, x[0], x[1]); });
}

Tensor targets_of(OnnxCall& call) { return call.tensor(1, DType::kF64); }

void check_shapes(const OnnxCall& call) {
  const Shape scores = call.shape(), targets = call.shape(1);
  bool fit = scores.rank() >= 2 && targets.rank() == scores.rank() - 1;
  for (int axis = 0; fit && axis < targets.rank(); ++axis) fit = targets[axis] == scores[axis == 0 ? 0 : axis + 1];
  if (!fit) call.fail("scores of shape " + scores.text() + " and targets of shape " + targets.text());
}

void negative_log_likelihood_loss(OnnxCall& call) {
  check_shapes(call);
  call.set(likelihood_loss(call, compose::axis_to_end(call.tensor(0), 1), targets_of(call), call.shape(1)));
}

void softmax_cross_entropy_loss(OnnxCall& call) {
  check_shapes(call);
  const Tensor scores = compose::axis_to_end(call.tensor(0), 1);
  const Tensor most = compose::fold_last(scores, compose::maximum);
  const Tensor centered = elementwise(
      call, {scores, most}, [](E& e, const std::vector<Ref>& x) { return e.apply(Scalar::kSub, x[0], x[1]); });
  const Tensor sums = compose::sum_last(exp(centered));
  const Tensor log_probabilities = elementwise(call, {centered, sums}, [](E& e, const std::vector<Ref>& x) {
    return e.apply(Scalar::kSub, x[0], e.apply(Scalar::kLog, x[1]));
  });
  call.set(likelihood_loss(call, log_probabilities, targets_of(call), call.shape(1)));
  if (call.is_wanted(1)) call.set(1, compose::axis_from_end(log_probabilities, 1), call.element());
}

// --- Bits of whole numbers without a sign, which are doubles here ---

}  // namespace

void add_loss_operators(std::vector<OnnxOperatorRow>& rows) {
  const OnnxOperatorRow list[] = {
      {"NegativeLogLikelihoodLoss", negative_log_likelihood_loss},
      {"SoftmaxCrossEntropyLoss", softmax_cross_entropy_loss},
  };
  rows.insert(rows.end(), std::begin(list), std::end(list));
}

}  // namespace linnet
