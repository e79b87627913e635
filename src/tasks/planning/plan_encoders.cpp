// `linnet plan` of what is trained on a BERT: masked language models and classifiers.
#include <algorithm>

#include "base/files.h"
#include "base/process_memory.h"
#include "models/families/pretrained.h"
#include "tasks/classification/classification_task.h"
#include "tasks/classification/onnx_classifier.h"
#include "tasks/masked/masked_task.h"
#include "tasks/planning/plan_parts.h"
#include "training/run/trainer_options.h"

namespace linnet {
namespace {

constexpr int64_t kAssumedTexts = 10'000;

}  // namespace

PlanAnswer plan_masked(const PlanRequest& request) {
  const Config& config = request.config;
  PlanAnswer answer;
  PretrainedModel model;
  MaskingOptions masking;
  int64_t tokens = 0;
  uint64_t resident = 0;
  const bool tokenizer = !config.data.tokenizer_dir.empty() || !config.model.from.empty();
  DataAtHand data = text_at_hand(config, request.exact);
  if (data.read && !tokenizer) data.read = false, data.why_not = "No tokenizer was given";
  if (data.read) {
    MaskedTask task(config, "", Capacity::kMayBeShort);
    masking = task.session().masking, tokens = task.train_tokens(), resident = task.forecast().resident;
    model = std::move(task.model().pretrained);
  } else {
    model = config.model.from.empty()
                ? describe_masked_model(config, config.data.vocab_size, 0)
                : open_pretrained(config.model.from, {.head = ModelHead::kTokens, .lora = lora_options(config)});
    const EncoderConfig& encoder = model.as<MaskedLanguageModel>().encoder.config;
    const TokenRoles roles{.pad = 0, .classify = 1, .separate = 2, .mask = 3};
    masking = masking_options(config, encoder, roles, encoder.vocab_size, true);
    tokens = data.assumed_tokens(config.data);
    resident = resident_bytes() + static_cast<uint64_t>(tokens) * 2;
    answer.assumption = data.why_not + "; assuming " + std::to_string(tokens) +
                        " tokens in documents of all lengths, and a vocabulary of " +
                        std::to_string(encoder.vocab_size) + ".";
  }
  const int64_t most = std::max<int64_t>(1, tokens / masking.lengths.back());
  const auto make_session = [&](int64_t rows) {
    MaskingOptions other = masking;
    other.rows = rows;
    return std::make_unique<MaskedSession>(config, model.as<MaskedLanguageModel>(), other, true, false);
  };
  answer_rows(answer, *make_session(masking.rows), most, resident, request, make_session);
  answer.shorter_key = "context";
  answer.batches = std::to_string(masking.rows) + " x " + std::to_string(masking.lengths.back()) + " tokens, " +
                   std::to_string(masked_places(masking, masking.lengths.back())) + " of a row masked, " +
                   std::to_string(masking.lengths.size()) + (masking.lengths.size() == 1 ? " shape" : " shapes");
  return answer;
}

PlanAnswer plan_classification(const PlanRequest& request) {
  const Config& config = request.config;
  PlanAnswer answer;
  PretrainedModel model;
  std::vector<std::string> classes{"0", "1"};
  int64_t texts = kAssumedTexts;
  uint64_t resident = resident_bytes();
  const bool network = is_onnx_path(config.model.from);
  const bool folder = network || is_pretrained_folder(config.model.from);
  std::unique_ptr<ClassificationTask> task;
  std::vector<std::string> paths;
  for (const std::string* name : {&config.data.train_tsv, &config.data.valid_tsv})
    if (!name->empty()) paths.push_back(data_path(config.data, *name));
  const DataAtHand data = data_at_hand("training text", paths, request.exact);
  if (folder && data.read) {
    task = std::make_unique<ClassificationTask>(config, "", Capacity::kMayBeShort);
    classes = task->session().classes, texts = task->train_count(), resident = task->forecast().resident;
  } else if (network) {
    classes.clear();
    model = open_onnx_classifier(config.model.from, classes);
    answer.assumption = data.why_not + "; assuming " + std::to_string(texts) + " texts.";
  } else if (folder) {
    model =
        open_pretrained(config.model.from, {.head = ModelHead::kClasses, .labels = 2, .lora = lora_options(config)});
    answer.assumption = data.why_not + "; assuming " + std::to_string(texts) + " texts in 2 classes.";
  } else {
    ConfigFile file = describe_masked_model(config, config.data.vocab_size, 0).config;
    file.set("architectures", std::vector<std::string>{find_family(file).architecture(ModelHead::kClasses).name});
    file.set("num_labels", 2);
    if (const auto lora = lora_options(config)) write_lora_options(*lora, file);
    model = new_pretrained(file);
    answer.assumption = "No model folder was given; assuming a BERT of the configuration's sizes, and 2 classes.";
  }
  TextClassifier& classifier = task ? task->session().model : model.as<TextClassifier>();
  const auto make_session = [&](int64_t rows) {
    Config other = config;
    other.data.batch_size = rows;
    return std::make_unique<ClassificationSession>(other, classifier, classes, true, false);
  };
  answer_rows(answer, *make_session(config.data.batch_size), texts, resident, request, make_session);
  const int64_t longest =
      std::min(config.data.context > 0 ? config.data.context : kDefaultTextLength, classifier.max_length());
  answer.shorter_key = "context";
  answer.batches = std::to_string(config.data.batch_size) + " texts of up to " + std::to_string(longest) + " tokens, " +
                   std::to_string(classes.size()) + " classes";
  return answer;
}

}  // namespace linnet
