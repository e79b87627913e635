#include "linnet/metrics.h"

#include <algorithm>
#include <cmath>

#include "linnet/error.h"

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
    fail_user("output \"" + output + "\" is " + type.text() + ", and \"" + target + "\" " + batch.type(target).text());
  const int64_t rows = type.shape.rank() > 0 ? type.shape[0] : 1;
  const auto count = static_cast<size_t>(type.shape.elements() / rows * rows_of(batch, type));
  MetricPart part{.count = static_cast<double>(count)};
  for (size_t i = 0; i < count; ++i) part.sum += value(static_cast<double>(given[i]) - static_cast<double>(wanted[i]));
  return part;
}

// The index of the largest of a row.
int32_t largest(std::span<const float> row) {
  return static_cast<int32_t>(std::ranges::max_element(row) - row.begin());
}

}  // namespace

Metric accuracy(const std::string& predictions, const std::string& labels) {
  return {"accuracy", [=](const Arrays& batch, const Arrays& outputs) {
            const auto wanted = batch.get<int32_t>(labels);
            const TensorType& type = outputs.type(predictions);
            const bool classes = type.dtype == DType::kI32;
            const auto width = classes ? size_t{1} : static_cast<size_t>(type.shape[-1]);
            const auto rows = static_cast<size_t>(rows_of(batch, batch.type(labels)));
            if (static_cast<size_t>(type.shape.elements()) < width * wanted.size())
              fail_user("output \"" + predictions + "\" is " + type.text() + ", which is not a row for each of \"" +
                        labels + "\" " + batch.type(labels).text());
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
