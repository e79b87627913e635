// A classifier of texts, or of their tokens, and its tokenizer, opened for use.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>
#include "config/config.h"
#include "data/text/pretrained_tokenizer.h"
#include "models/families/pretrained.h"
#include "models/modules/text_classifier.h"
#include "training/run/pretrained_run.h"

namespace linnet {

constexpr int64_t kDefaultTextLength = 128;  // tokens of a text, where the configuration says nothing

// What the outputs of a model mean.
enum class TextProblem {
  kOneClass,        // logits of classes, of which each text has one
  kSeveralClasses,  // logits of labels, each by itself
  kNumbers,
  kTokenClasses,  // logits of the classes of each token
  kSpans,         // logits of each token as the first and the last one of an answer
  kEmbeddings,    // no head: numbers whose cosines say how alike texts are
};
// By the head and "problem_type", as transformers has it: without one, a model with one output gives a number.
TextProblem problem_of(const PretrainedModel& model);
// Of a model that classifies whole texts or images, by "problem_type".
TextProblem problem_of(const ConfigFile& config, bool is_of_family = true);
// What opens or makes a model for a problem: its head, and "problem_type" ("" without one).
ModelHead head_of(TextProblem problem);
std::string problem_type_of(TextProblem problem);

// Tokens of the longest text that the model is asked for.
int64_t longest_text(const Config& config, const TextClassifier& model);
// What texts are padded to, ascending; the last is longest_text().
std::vector<int64_t> text_lengths(const Config& config, const TextClassifier& model);

// A run of a task on texts, or a model folder with such a head (BertForSequenceClassification), without its weights.
struct OpenedTextClassifier {
  std::string folder;
  bool is_run = false;
  Config config;  // of the run, or one made up for a model folder
  std::unique_ptr<PretrainedTokenizer> tokenizer;
  PretrainedModel model;
  std::vector<std::string> outputs;  // what they are called: classes, labels, tags
  bool pairs = false;                // whether it takes pairs of texts

  TextProblem problem() const { return problem_of(model); }
  // Of a model folder, as its files have it; null: a run of ours.
  const PretrainedModel* of_folder() const { return is_run ? nullptr : &model; }
  const Module& module() const { return *model.module; }
  LoadWeights weights() const { return weights_of(folder, of_folder()); }
};
// With the adapters of another folder, if any, beside the weights of a model folder, which may lack a classifier where
// the adapters bring theirs.
OpenedTextClassifier open_text_classifier(const std::string& folder, const std::vector<AdapterFolder>& adapters = {});
// A run's model alone.
PretrainedModel open_classification_run(const std::string& folder);
// Whether the folder is a model folder with such a head, or one of sentence-transformers.
bool is_text_classifier_folder(const std::string& folder);
bool is_sentence_folder(const std::string& folder);
// A run or a model folder that labels words or finds answers in texts.
bool marks_spans(const std::string& folder);

// The logits [rows, classes] as probabilities of one class each, which sum to 1 over a row.
std::vector<double> softmax_rows(const std::vector<float>& logits, size_t classes);
// The probability of one label by itself.
double sigmoid(double logit);

}  // namespace linnet
