// A trained classifier of texts or images, opened to tell the classes of new ones.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tasks/class_probabilities.h"
#include "tasks/inference.h"

namespace linnet {

class Classifier {
 public:
  virtual ~Classifier() = default;
  virtual const std::vector<std::string>& classes() const = 0;
  // Whether the inputs are paths of images rather than texts.
  virtual bool takes_images() const = 0;
  // The probability of each class for each input, [inputs, classes].
  virtual std::vector<double> predict(const std::vector<std::string>& inputs) = 0;
};

// `folder`: a run of classification or images, or a model folder of BertForSequenceClassification. `rows`: inputs
// computed at once. User error that names the folder when it holds anything else.
std::unique_ptr<Classifier> open_classifier(const std::string& folder, const InferenceOptions& options, int64_t rows);
std::unique_ptr<Classifier> classify_texts(const std::string& folder, const InferenceOptions& options, int64_t rows);
std::unique_ptr<Classifier> classify_images(const std::string& folder, const InferenceOptions& options, int64_t rows);

}  // namespace linnet
