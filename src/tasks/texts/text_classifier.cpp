#include "tasks/texts/text_classifier.h"
#include "base/text.h"
#include "models/families/config_file.h"
#include "models/families/sentence_embedder.h"
#include "models/nn/model_file.h"
#include "tasks/texts/onnx_classifier.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
constexpr int64_t kLeastStep = 4, kStepsPerDoubling = 8;  // of padded lengths
// How a model folder says what outputs mean: by its head, for whole texts with "problem_type".
struct ProblemRow {
  TextProblem problem;
  ModelHead head;
  const char* type;
};
constexpr std::array kProblems{
    ProblemRow{TextProblem::kOneClass, ModelHead::kClasses, "single_label_classification"},
    ProblemRow{TextProblem::kSeveralClasses, ModelHead::kClasses, "multi_label_classification"},
    ProblemRow{TextProblem::kNumbers, ModelHead::kClasses, "regression"},
    ProblemRow{TextProblem::kTokenClasses, ModelHead::kTokenClasses, ""},
    ProblemRow{TextProblem::kSpans, ModelHead::kSpans, ""},
    ProblemRow{TextProblem::kEmbeddings, ModelHead::kNone, ""},
};
const ProblemRow& row_of(TextProblem problem) { return *std::ranges::find(kProblems, problem, &ProblemRow::problem); }
}  // namespace

TextProblem problem_of(const PretrainedModel& model) {
  const auto row = std::ranges::find(kProblems, model.head, &ProblemRow::head);
  if (!model.family || row == kProblems.end() || model.head == ModelHead::kClasses)
    return problem_of(model.config, model.family != nullptr);  // ONNX networks have classes
  return row->problem;
}

TextProblem problem_of(const ConfigFile& config, bool is_of_family) {
  const std::string type = problem_type(config);
  if (type.empty()) return is_of_family && label_count(config) == 1 ? TextProblem::kNumbers : TextProblem::kOneClass;
  const auto row = std::ranges::find(kProblems, type, &ProblemRow::type);
  return row == kProblems.end() ? TextProblem::kOneClass : row->problem;
}

ModelHead head_of(TextProblem problem) { return row_of(problem).head; }

std::string problem_type_of(TextProblem problem) { return row_of(problem).type; }

int64_t longest_text(const Config& config, const TextClassifier& model) {
  const int64_t most = model.max_length();
  return std::min(config.data.context > 0 ? config.data.context : kDefaultTextLength, most);
}

std::vector<int64_t> text_lengths(const Config& config, const TextClassifier& model) {
  // Padding is at most an eighth of a row, with few lengths: each is a plan.
  return growing_sizes(kLeastStep, longest_text(config, model), [](int64_t length) {
    const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(length)));
    return length + std::max(kLeastStep, power / kStepsPerDoubling);
  });
}

bool is_text_classifier_folder(const std::string& folder) {
  return is_model_folder(
      folder, FamilyKind::kEncoder, {ModelHead::kClasses, ModelHead::kTokenClasses, ModelHead::kSpans});
}

bool is_sentence_folder(const std::string& folder) {
  return !sentence_files(folder).empty() && is_model_folder(folder, FamilyKind::kEncoder);
}

bool marks_spans(const std::string& folder) {
  const std::string path = (RunFolder(folder).has_config() ? model_description(folder) : folder) + "/config.json";
  if (!file_exists(path)) return false;  // a run of an ONNX file
  const auto head = named_head(ConfigFile(path));
  return head == ModelHead::kTokenClasses || head == ModelHead::kSpans;
}

OpenedTextClassifier open_text_classifier(const std::string& folder, const std::vector<AdapterFolder>& adapters) {
  refuse_names(adapters);
  OpenedTextClassifier opened;
  opened.folder = folder;
  const bool embeds = is_sentence_folder(folder);
  opened.is_run = RunFolder(folder).has_config() || (adapters.empty() && !embeds && !is_text_classifier_folder(folder));
  if (opened.is_run) refuse_adapters(folder, adapters);
  if (opened.is_run) {
    opened.config = RunFolder(folder).load_config();
    opened.tokenizer = open_run_tokenizer(folder);
    opened.model = open_classification_run(folder);
  } else {
    opened.tokenizer = load_pretrained_tokenizer(folder);
    OpenOptions options;
    if (embeds && !are_classifiers(adapters)) options.head = ModelHead::kNone;
    opened.model = open_with_adapters(folder, adapters, options);
    if (opened.problem() == TextProblem::kEmbeddings) take_pooling(opened.model, folder);
    opened.config.data.context = opened.model.as<TextClassifier>().max_length();
    if (const int64_t most = opened.tokenizer->max_length(); most > 0)
      opened.config.data.context = std::min(opened.config.data.context, most);
    opened.config.data.batch_size = 16, opened.config.data.batch_tokens = 0;
  }
  opened.outputs = label_names(opened.model.config);
  if (const auto* encoder = dynamic_cast<const SentenceEncoder*>(opened.model.module.get()))
    opened.outputs.resize(encoder->width());
  opened.pairs = has_pairs(opened.model.config) || opened.problem() == TextProblem::kSpans;
  opened.config.answers.may_lack = may_lack_answers(opened.model.config);
  return opened;
}

std::vector<double> softmax_rows(const std::vector<float>& logits, size_t classes) {
  std::vector<double> probabilities(logits.size());
  for (size_t row = 0; row < logits.size(); row += classes) {
    const double largest = *std::max_element(logits.begin() + row, logits.begin() + (row + classes));
    double sum = 0;
    for (size_t i = row; i < row + classes; ++i) sum += probabilities[i] = std::exp(logits[i] - largest);
    for (size_t i = row; i < row + classes; ++i) probabilities[i] /= sum;
  }
  return probabilities;
}

std::string first_names(const std::vector<std::string>& names, size_t most) {
  size_t shown = 0;
  for (size_t bytes = 0; shown < std::min(most, names.size()) && bytes < 200; ++shown) bytes += names[shown].size();
  return joined(std::span(names).first(shown)) + (names.size() > shown ? ", ..." : "");
}

double sigmoid(double logit) { return 1 / (1 + std::exp(-logit)); }

PretrainedModel open_classification_run(const std::string& folder) {
  return is_onnx_run(folder) ? open_onnx_run(folder) : open_run_model(folder);
}
}  // namespace linnet
