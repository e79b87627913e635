// Log probabilities of texts, or of translations by encoder-decoders; and cross-encoders' scores of text pairs.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "tasks/inference.h"

namespace linnet {
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
