// A classifier of texts and its tokenizer, opened for use.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "models/modules/text_classifier.h"
#include "models/nn/parameter_layout.h"
#include "models/families/pretrained.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {

class ClassificationSession;

constexpr int64_t kDefaultTextLength = 128;  // tokens of a text, where the configuration says nothing

// Tokens of the longest text that the model is asked for.
int64_t longest_text(const Config& config, const TextClassifier& model);
// What texts are padded to, ascending; the last is longest_text().
std::vector<int64_t> text_lengths(const Config& config, const TextClassifier& model);

// A run of classification, or a model folder of BertForSequenceClassification, without its weights.
struct OpenedTextClassifier {
  std::string folder;
  bool is_run = false;
  Config config;  // of the run, or one made up for a model folder
  std::unique_ptr<PretrainedTokenizer> tokenizer;
  PretrainedModel model;
  std::vector<std::string> classes;

  void load_weights(const ParameterLayout& layout, const ParameterTarget& parameters) const;
  void take_weights_into(ClassificationSession& session) const;
};
// With the adapters of another folder, if any, beside the weights of a model folder, which may lack a classifier where
// the adapters bring theirs.
OpenedTextClassifier open_text_classifier(const std::string& folder, const std::vector<AdapterFolder>& adapters = {});
// Whether `folder` is a model folder (not a run) that classifies texts.
bool is_text_classifier_folder(const std::string& folder);

// The model of a run folder, without its weights.
PretrainedModel open_classification_run(const std::string& folder);

}  // namespace linnet
