// A trained model, opened to label texts or images.
#pragma once
#include <memory>
#include <string>
#include <vector>
#include "tasks/answer.h"
#include "tasks/inference.h"
#include "tasks/texts/text_records.h"

namespace linnet {
class Predictor {
 public:
  virtual ~Predictor() = default;
  virtual bool takes_images() const { return false; }
  // Whether an input is two texts with a tab between them.
  virtual bool takes_pairs() const { return false; }
  // Calls use(text) for each text of a file, which may be a table or JSON lines (texts/text_records.h), or each image
  // of a table. `named`: columns that the user names; else the run's.
  virtual void for_each_text(const std::string&, const DataConfig&, const UseText&) const {}
  virtual int64_t outputs() const = 0;  // classes, labels, tags or numbers
  // One answer for each input; for classes the `top` likeliest.
  virtual std::vector<Answer> answer(const std::vector<std::string>& inputs, int64_t top) = 0;
  virtual std::vector<std::string> heading(int64_t top) const = 0;  // of the answers' cells
};

// `folder`: a run on texts or images, or a model folder with such a head (BertForSequenceClassification). `rows`:
// inputs computed at once. `pairs`: inputs are pairs; a run knows by itself. User error naming any other folder.
std::unique_ptr<Predictor> open_predictor(
    const std::string& folder, const InferenceOptions& options, int64_t rows, bool pairs = false);
std::unique_ptr<Predictor> predict_texts(const std::string& folder, const InferenceOptions& options, int64_t rows);
std::unique_ptr<Predictor> predict_images(const std::string& folder, const InferenceOptions& options, int64_t rows);
}  // namespace linnet
