#include "tasks/classification/text_classifier.h"

#include <algorithm>

#include "models/families/labels.h"
#include "models/nn/model_file.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {

constexpr int64_t kLengthStep = 16;

}  // namespace

int64_t longest_text(const Config& config, const TextClassifier& model) {
  const int64_t most = model.max_length();
  return std::min(config.data.context > 0 ? config.data.context : kDefaultTextLength, most);
}

std::vector<int64_t> text_lengths(const Config& config, const TextClassifier& model) {
  const int64_t longest = longest_text(config, model);
  std::vector<int64_t> lengths;
  for (int64_t length = kLengthStep; length < longest; length += kLengthStep) lengths.push_back(length);
  lengths.push_back(longest);
  return lengths;
}

bool is_text_classifier_folder(const std::string& folder) {
  if (RunFolder(folder).has_config() || !is_pretrained_folder(folder)) return false;
  const ConfigFile config(folder + "/config.json");
  return named_head(config) == ModelHead::kClasses && find_family(config).kind == FamilyKind::kEncoder;
}

OpenedTextClassifier open_text_classifier(const std::string& folder, const std::vector<AdapterFolder>& adapters) {
  refuse_names(adapters);
  OpenedTextClassifier opened;
  opened.folder = folder;
  opened.is_run = RunFolder(folder).has_config() || (adapters.empty() && !is_text_classifier_folder(folder));
  if (opened.is_run) refuse_adapters(folder, adapters);
  if (opened.is_run) {
    opened.config = RunFolder(folder).load_config();
    opened.tokenizer = open_run_tokenizer(folder);
    opened.model = open_classification_run(folder);
  } else {
    opened.tokenizer = load_pretrained_tokenizer(folder);
    opened.model = open_with_adapters(folder, adapters, {});
    opened.config.data.task = "classification";
    opened.config.data.context = opened.model.as<TextClassifier>().max_length();
    opened.config.data.batch_size = 16, opened.config.data.batch_tokens = 0;
  }
  opened.classes = label_names(opened.model.config);
  return opened;
}

void OpenedTextClassifier::load_weights(const ParameterLayout& layout, const ParameterTarget& parameters) const {
  if (is_run)
    load_model(RunFolder(folder).best_weights(), layout, parameters);
  else
    load_parameters(model, layout, parameters);
}

}  // namespace linnet
