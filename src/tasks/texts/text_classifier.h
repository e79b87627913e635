// A classifier of texts or tokens with its tokenizer, opened for use.
#pragma once
#include "config/config.h"
#include "data/text/pretrained_tokenizer.h"
#include "models/families/pretrained.h"
#include "models/modules/losses.h"
#include "training/run/pretrained_run.h"

namespace linnet {
constexpr int64_t kDefaultTextLength = 128;  // default tokens of a text

enum class TextProblem {
  kOneClass,        // logits of classes, one for each text
  kSeveralClasses,  // logits of independent labels
  kNumbers,
  kTokenClasses,  // logits of the classes of each token
  kSpans,         // logits of each token as an answer's first and last
  kEmbeddings,    // no head: vectors compared by cosine
};
// By the head and "problem_type" as in transformers; without it, one output means a number.
TextProblem problem_of(const PretrainedModel& model);
// For whole texts or images, by "problem_type".
TextProblem problem_of(const ConfigFile& config, bool is_of_family = true);
// A problem's head, and its "problem_type" ("" for none).
ModelHead head_of(TextProblem problem);
std::string problem_type_of(TextProblem problem);

// The most tokens of a text.
int64_t longest_text(const Config& config, const TextClassifier& model);
// Padded lengths, ascending; the last is longest_text().
std::vector<int64_t> text_lengths(const Config& config, const TextClassifier& model);

// A text run, or a model folder with such a head (BertForSequenceClassification), without its weights.
struct OpenedTextClassifier {
  std::string folder;
  bool is_run = false;
  Config config;  // of the run, or made for a model folder
  std::unique_ptr<PretrainedTokenizer> tokenizer;
  PretrainedModel model;
  std::vector<std::string> outputs;  // names of classes, labels, tags
  bool pairs = false;                // whether it takes pairs of texts

  TextProblem problem() const { return problem_of(model); }
  // The model folder's contents; null for a run.
  const PretrainedModel* of_folder() const { return is_run ? nullptr : &model; }
  const Module& module() const { return *model.module; }
  LoadWeights weights() const { return weights_of(folder, of_folder()); }
};
// Adds the adapters of another folder, if any, to a model folder's weights. They may bring a missing classifier.
OpenedTextClassifier open_text_classifier(const std::string& folder, const std::vector<AdapterFolder>& adapters = {});
// The run's model without a tokenizer.
PretrainedModel open_classification_run(const std::string& folder);
// Whether it is a model folder with such a head, or of sentence-transformers.
bool is_text_classifier_folder(const std::string& folder);
bool is_sentence_folder(const std::string& folder);
// Whether a run or a model folder labels words or finds answers.
bool marks_spans(const std::string& folder);

// Softmax of each row of logits [rows, classes].
std::vector<double> softmax_rows(const std::vector<float>& logits, size_t classes);
double sigmoid(double logit);
// "spam, ham, ...": the first of them, for messages; fewer than `most` where they are long.
std::string first_names(const std::vector<std::string>& names, size_t most = 12);
}  // namespace linnet
