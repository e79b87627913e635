// Trained models, opened to label texts or images, or to score texts.
#pragma once
#include "tasks/inference.h"
#include "tasks/texts/text_records.h"
#include "tasks/texts/text_task.h"

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
  virtual int64_t choices() const = 0;  // the most for `top`: classes, or answers to a question; else 1
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

// Log probabilities of texts, or of translations by encoder-decoders; and cross-encoders' scores of text pairs.
struct TextScore {
  double log_probability = 0;        // natural logarithm; sum over the scored tokens
  int64_t tokens = 0;                // scored tokens
  std::optional<double> score = {};  // of a cross-encoder, instead of both
};

class Scorer {
 public:
  virtual ~Scorer() = default;
  // Whether score() needs a source beside the text.
  virtual bool takes_pairs() const = 0;
  // A language model scores each token of `text` after its begin token (without one the first token is not scored), in
  // chunks of the model's length that do not overlap. An encoder-decoder scores `text` and its end as translation of
  // `source`; sides that are too long are cut. A cross-encoder reads `source` first.
  virtual TextScore score(const std::string& text, const std::string& source) = 0;
  int64_t cut_texts() const { return cut_texts_; }

 protected:
  int64_t cut_texts_ = 0;
};

// `folder`: a run or a model folder. User error naming it if it holds no such model.
std::unique_ptr<Scorer> open_scorer(const std::string& folder, const InferenceOptions& options);
std::unique_ptr<Scorer> open_language_scorer(const std::string& folder, const InferenceOptions& options);
std::unique_ptr<Scorer> open_translation_scorer(const std::string& folder, const InferenceOptions& options);
}  // namespace linnet
