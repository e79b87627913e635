// Numbers that say how good a model is, computed from a batch and the outputs of the model for it.
#pragma once
#include <functional>
#include <string>
#include "linnet/arrays.h"

namespace linnet {
// A mean that is added up over batches: sum / count.
struct MetricPart {
  // Of the values of a batch.
  double sum = 0;
  // How many values those are.
  double count = 0;
};

// A metric by name: a function of each batch and of the outputs for it. The value is the sum of the sums over the sum
// of the counts. Rows behind batch.samples are padding; a metric leaves them out.
struct Metric {
  // Identifies the value in reports.
  std::string name;
  // Of one batch.
  std::function<MetricPart(const Arrays& batch, const Arrays& outputs)> compute;
};

// The share of rows whose prediction is the label: the output `predictions` i32 [rows] or logits [rows, classes] (the
// largest counts), and the batch's `labels` i32 [rows]. Rows with a negative label are left out.
Metric accuracy(const std::string& predictions = "logits", const std::string& labels = "labels");
// The mean of |output - target| over all elements of two f32 arrays of the same shape.
Metric mean_absolute_error(const std::string& output, const std::string& target);
// The mean of (output - target)^2 over all elements of two f32 arrays of the same shape.
Metric mean_squared_error(const std::string& output, const std::string& target);
}  // namespace linnet
