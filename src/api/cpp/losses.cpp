#include "linnet/losses.h"
#include <algorithm>
#include <cmath>
#include "api/cpp/helpers.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "linnet/error.h"
#include "linnet/metrics.h"

namespace linnet {
namespace {
int64_t rows_of(const Arrays& batch, const TensorType& type) {
  const int64_t rows = type.shape.rank() > 0 ? type.shape[0] : 1;
  return batch.samples > 0 ? std::min(batch.samples, rows) : rows;
}

MetricPart mean_of(const Arrays& batch, const Arrays& outputs, const std::string& output, const std::string& target,
    const std::function<double(double)>& value) {
  const auto given = outputs.get<float>(output), wanted = batch.get<float>(target);
  const TensorType& type = outputs.type(output);
  if (given.size() != wanted.size())
    fail_user("output \"", output, "\" is ", type.text(), ", and \"", target, "\" ", batch.type(target).text());
  const int64_t rows = type.shape.rank() > 0 ? type.shape[0] : 1;
  const auto count = static_cast<size_t>(type.shape.elements() / rows * rows_of(batch, type));
  MetricPart part{.count = static_cast<double>(count)};
  for (size_t i = 0; i < count; ++i) part.sum += value(static_cast<double>(given[i]) - static_cast<double>(wanted[i]));
  return part;
}

// The index of a row's largest value.
int32_t largest(std::span<const float> row) {
  return static_cast<int32_t>(std::ranges::max_element(row) - row.begin());
}

// One-hot rows of the targets.
Tensor at_targets(At logits, Tensor targets, const char* op) {
  const Shape shape = logits.value.shape();
  if (shape.rank() < 1 || targets.type() != TensorType{DType::kI32, leading_axes(shape)})
    fail_shape(logits, op, ": logits ", shape, " and targets ", targets.type(), ", expected [..., V] and i32 [...]");
  return one_hot(At(targets, logits.where), shape[-1], logits.value.type().dtype);
}

// loss(prediction, target) is a number for each element of the prediction: the mean over elements of rows that are
// samples. Shapes [N, 1] and [N] would broadcast to [N, N], and compare each prediction with all targets.
template <class LossOf> Loss mean_of_samples(Tracer& trace, At prediction, Tensor target, const LossOf& loss) {
  if (prediction.value.shape() != target.shape())
    fail_shape(prediction, "a loss of predictions ", prediction.value.shape(), " and targets ", target.shape(),
        ", expected equal shapes; reshape one");
  const auto at = [&](Tensor value) { return At(value, prediction.where); };
  const At elements = at(loss(prediction, target));
  const Shape shape = elements.value.shape();
  const Tensor mask = trace.row_mask();
  if (shape.rank() < 1 || shape[0] != mask.dim(0))
    fail_shape(elements, "a loss of elements ", shape, ", expected ", mask.dim(0), " rows, as the batch has");
  Shape rows = shape;
  for (int axis = 1; axis < shape.rank(); ++axis) rows.set(axis, 1);
  const Tensor counted = elements * reshape(at(mask), rows);
  return {.sum = sum(at(counted)),
      .count = at(trace.sample_count()) * static_cast<double>(shape.elements(1, shape.rank()))};
}
}  // namespace

Tensor binary_cross_entropy_sum(At logits, Tensor targets) {
  return sum(At(At(softplus(logits), logits.where) - logits * targets, logits.where));
}

// Ignores rows whose one-hot target is zero, by multiplication with the target's sum.
Tensor cross_entropy(At logits, Tensor targets, double label_smoothing) {
  const auto at = [&](Tensor value) { return At(value, logits.where); };
  const Tensor target = at_targets(logits, targets, "cross_entropy");
  const Tensor counts = sum(at(target), -1), chosen = sum(at(logits * target), -1);
  const Tensor loss = at(log_sum_exp(logits)) - at(chosen) * (1 - label_smoothing);
  const Tensor smoothed = label_smoothing > 0 ? at(loss) - at(mean(logits, -1)) * label_smoothing : loss;
  return at(smoothed) * counts;
}

Tensor weighted_cross_entropy_sum(At logits, Tensor targets, Tensor class_weights) {
  const auto at = [&](Tensor value) { return At(value, logits.where); };
  const Tensor weights = sum(at(at(at_targets(logits, targets, "cross_entropy")) * class_weights), -1);
  return sum(at(at(cross_entropy(logits, targets)) * weights));
}

Loss squared_error_loss(Tracer& trace, At prediction, Tensor target) {
  return mean_of_samples(trace, prediction, target, [](At x, Tensor y) { return square(At(x - y, x.where)); });
}

Loss absolute_error_loss(Tracer& trace, At prediction, Tensor target) {
  return mean_of_samples(trace, prediction, target, [](At x, Tensor y) { return abs(At(x - y, x.where)); });
}

Loss huber_loss(Tracer& trace, At prediction, Tensor target, double delta) {
  return mean_of_samples(trace, prediction, target, [=](At x, Tensor y) { return huber(x, y, delta); });
}

Loss binary_cross_entropy_loss(Tracer& trace, At logits, Tensor targets) {
  return mean_of_samples(trace, logits, targets, [](At x, Tensor y) { return At(softplus(x), x.where) - x * y; });
}

Loss cross_entropy_loss(At logits, Tensor targets, double label_smoothing) {
  return {
      .sum = cross_entropy_sum(logits, targets, label_smoothing), .count = count_targets(At(targets, logits.where))};
}

Metric accuracy(const std::string& predictions, const std::string& labels) {
  return {"accuracy", [=](const Arrays& batch, const Arrays& outputs) {
            if (!batch.has(labels) || !outputs.has(predictions))
              fail_user("the metric \"accuracy\" compares the output \"", predictions, "\" with the field \"", labels,
                  "\" of the batch, and there is no ", outputs.has(predictions) ? "such field" : "such output");
            const auto wanted = batch.get<int32_t>(labels);
            const TensorType& type = outputs.type(predictions);
            const bool classes = type.dtype == DType::kI32;
            const auto width = classes ? size_t{1} : static_cast<size_t>(type.shape[-1]);
            const auto rows = static_cast<size_t>(rows_of(batch, batch.type(labels)));
            if (static_cast<size_t>(type.shape.elements()) < width * wanted.size())
              fail_user("output \"", predictions, "\" is ", type, ", which is not a row for each of \"", labels, "\" ",
                  batch.type(labels));
            MetricPart part;
            for (size_t row = 0; row < rows; ++row) {
              if (wanted[row] < 0) continue;
              const int32_t given = classes ? outputs.get<int32_t>(predictions)[row]
                                            : largest(outputs.get<float>(predictions).subspan(row * width, width));
              part.sum += given == wanted[row];
              part.count += 1;
            }
            return part;
          }};
}

Metric mean_absolute_error(const std::string& output, const std::string& target) {
  return {"mean_absolute_error", [=](const Arrays& batch, const Arrays& outputs) {
            return mean_of(batch, outputs, output, target, [](double error) { return std::abs(error); });
          }};
}

Metric mean_squared_error(const std::string& output, const std::string& target) {
  return {"mean_squared_error", [=](const Arrays& batch, const Arrays& outputs) {
            return mean_of(batch, outputs, output, target, [](double error) { return error * error; });
          }};
}
}  // namespace linnet
