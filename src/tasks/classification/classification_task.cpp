#include "tasks/classification/classification_task.h"

#include <malloc.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "data/metrics/f1.h"
#include "engine/exec/backend.h"
#include "models/families/labels.h"
#include "tasks/classification/onnx_classifier.h"
#include "tasks/inference.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"
#include "training/run/trainer_options.h"

namespace linnet {
namespace {

LabelledSequences encode(const LabelledText& text, const PretrainedTokenizer& tokenizer,
                         const std::vector<std::string>& classes, int64_t longest, const std::string& name) {
  LabelledSequences data;
  for (size_t i = 0; i < text.texts.size(); ++i) {
    data.tokens.push_back(tokenizer.encode(text.texts[i], EncodeOptions{.max_length = longest, .offsets = false}).ids);
    if (data.tokens.back().empty()) fail_user(name + ": a text without tokens");
    const auto found = std::find(classes.begin(), classes.end(), text.labels[i]);
    if (found == classes.end())
      fail_user(name + ": the label '" + text.labels[i] + "' is none of the " + std::to_string(classes.size()) +
                " the model was trained on");
    data.labels.push_back(static_cast<int32_t>(found - classes.begin()));
  }
  return data;
}

std::string file_of(const Config& config, const std::string& path, const char* key) {
  if (path.empty())
    fail_user(std::string("task = \"classification\" reads the file ") + key + ", which is not given (--data FILE)");
  return data_path(config.data, path);
}

// Texts to train on and texts to choose by: those of valid_tsv, or a share of the former.
std::pair<LabelledText, LabelledText> load_texts(const Config& config) {
  LabelledText train = read_labelled_text(file_of(config, config.data.train_tsv, "train_tsv")), valid;
  if (!config.data.valid_tsv.empty())
    valid = read_labelled_text(data_path(config.data, config.data.valid_tsv));
  else
    valid = split_off(train, config.data.held_out, static_cast<uint64_t>(config.train.seed));
  if (valid.texts.empty())
    fail_user(
        "no label of the training file occurs often enough to set some lines aside: are its columns text<TAB>label? "
        "(--set data.valid_tsv=FILE names other lines to choose by)");
  return {std::move(train), std::move(valid)};
}

// "negative: 3310, positive: 3610", the most frequent ones.
std::string class_counts(const std::vector<std::string>& labels, const std::vector<std::string>& classes) {
  constexpr size_t kMost = 12;
  std::vector<std::pair<int64_t, std::string>> counts;
  for (const std::string& name : classes) counts.emplace_back(-std::ranges::count(labels, name), name);
  std::ranges::stable_sort(counts, {}, [](const auto& count) { return count.first; });
  std::string text;
  for (size_t i = 0; i < std::min(kMost, counts.size()); ++i)
    text += (i ? ", " : "") + counts[i].second + ": " + std::to_string(-counts[i].first);
  return text + (counts.size() > kMost ? ", ..." : "");
}

// A label that occurs once among many is a heading or a slip more often than a class.
void warn_of_rare_labels(const std::vector<std::string>& labels, const std::vector<std::string>& classes) {
  constexpr int64_t kMany = 20;
  for (const std::string& name : classes)
    if (std::ranges::count(labels, name) == 1 && std::ssize(labels) >= kMany * std::ssize(classes))
      log_warning("the label '" + name + "' occurs once in the training file: is it meant as a class?");
}

}  // namespace

ClassificationSession::ClassificationSession(const Config& config, TextClassifier& classifier,
                                             std::vector<std::string> class_names, bool training, bool verify_plans)
    : Session(config, classifier, training, verify_plans,
              [&](Trace& trace) {
                return classification_loss(classifier, trace, 1, text_lengths(config, classifier).front());
              }),
      rows(config.data.batch_size),
      lengths(text_lengths(config, classifier)),
      classes(std::move(class_names)),
      model(classifier) {
  std::vector<LossFunction> losses;
  for (const int64_t length : lengths)
    losses.push_back([this, length](Trace& trace) { return classification_loss(model, trace, rows, length); });
  plan(labelled_inputs(rows, lengths.back()), losses);
}

std::vector<float> ClassificationSession::logits(const LabelledSequences& data) {
  LabelledBatches batches(data, rows, lengths, 0);
  std::vector<float> all(data.tokens.size() * classes.size());
  std::vector<int64_t> order;
  for (int64_t index = 0; index < batches.batches_per_epoch(); ++index) {
    const Batch& batch = batches.sorted_batch(index, order);
    trainer->evaluate(batch);
    const float* found = trainer->evaluation_output(batch.shape_index, "logits").as<const float>();
    for (const int64_t i : order) {
      std::copy_n(found, classes.size(), all.begin() + i * static_cast<std::ptrdiff_t>(classes.size()));
      found += classes.size();
    }
  }
  return all;
}

Evaluation ClassificationSession::evaluate(const LabelledSequences& data) {
  SharedWork alone = SharedWork::alone();
  return evaluate(data, alone);
}

Evaluation ClassificationSession::evaluate(const LabelledSequences& data, SharedWork& ranks) {
  LabelledBatches batches(data, rows, lengths, 0);
  std::vector<int64_t> order;
  // Of a batch: the sum of losses, how many rows it has, and for each of them what was predicted and what it is.
  const int64_t width = 2 + 2 * rows;
  const std::vector<double> found =
      ranks.numbers(batches.batches_per_epoch(), width, [&](int64_t index, std::span<double> result) {
        const Batch& batch = batches.sorted_batch(index, order);
        result[0] = trainer->evaluate(batch).sum;
        result[1] = static_cast<double>(order.size());
        const int32_t* predicted = trainer->evaluation_output(batch.shape_index, "predictions").as<const int32_t>();
        for (size_t i = 0; i < order.size(); ++i) {
          result[2 + 2 * i] = predicted[i];
          result[3 + 2 * i] = data.labels[static_cast<size_t>(order[i])];
        }
      });
  std::vector<int32_t> predictions, labels;
  double sum = 0;
  for (auto batch = found.begin(); batch != found.end(); batch += width) {
    sum += batch[0];
    for (int64_t i = 0; i < static_cast<int64_t>(batch[1]); ++i) {
      predictions.push_back(static_cast<int32_t>(batch[2 + 2 * i]));
      labels.push_back(static_cast<int32_t>(batch[3 + 2 * i]));
    }
  }
  int64_t right = 0;
  for (size_t i = 0; i < labels.size(); ++i) right += predictions[i] == labels[i];
  const auto count = static_cast<double>(labels.size());
  return {sum / count,
          data.size(),
          {{"accuracy", static_cast<double>(right) / count},
           {"f1", f1_score(predictions, labels, static_cast<int64_t>(classes.size()))}},
          {}};
}

ClassificationTask::ClassificationTask(const Config& config, const std::string& from, Capacity capacity)
    : config_(config) {
  auto [train, valid] = load_texts(config);
  const std::string train_path = data_path(config.data, config.data.train_tsv);
  const std::string valid_path = data_path(config.data, config.data.valid_tsv);
  std::vector<std::string> classes = label_names(train.labels);
  if (from.empty()) check_are_classes(train.labels, train_path);
  if (classes.size() < 2) fail_user("'" + train_path + "' has one label only: there is nothing to tell apart");
  if (from.empty() && is_onnx_path(config.model.from)) {
    if (config.lora.rank > 0)
      fail_user("lora.rank trains adapters beside a model folder; a network of an ONNX file has none");
    model_ = open_onnx_classifier(config.model.from, classes);
    tokenizer_ = load_onnx_tokenizer(config.model.from);
  } else if (from.empty()) {
    tokenizer_ = load_pretrained_tokenizer(config.model.from);
    model_ = open_pretrained(
        config.model.from,
        {.head = ModelHead::kClasses, .labels = static_cast<int64_t>(classes.size()), .lora = lora_options(config)});
    name_labels(model_.config, classes);
  } else {
    tokenizer_ = open_run_tokenizer(from);
    model_ = open_classification_run(from);
    classes = label_names(model_.config);
  }
  auto& classifier = model_.as<TextClassifier>();
  log_info("classes: " + class_counts(train.labels, classes));
  warn_of_rare_labels(train.labels, classes);
  train_ = encode(train, *tokenizer_, classes, longest_text(config, classifier), "'" + train_path + "'");
  valid_ = encode(valid, *tokenizer_, classes, longest_text(config, classifier), "'" + valid_path + "'");
  train = {}, valid = {};
  log_info(std::to_string(train_.size()) + " texts to train on, " + std::to_string(valid_.size()) +
           " to choose by, of " + std::to_string(classes.size()) + " classes");
  session_.emplace(config, classifier, classes, true, capacity == Capacity::kMustSuffice);
  if (allocate_within(*session_, "; a smaller batch_size needs less", capacity)) {
    batches_.emplace(train_, session_->rows, session_->lengths, static_cast<uint64_t>(config.train.seed));
  }
  malloc_trim(0);  // what loading and planning freed should not count
  forecast_ = forecast_memory(resident_bytes(), session_->store);
}

const PretrainedModel* ClassificationTask::starts_from() const { return model_.folder.empty() ? nullptr : &model_; }

void ClassificationTask::initialize() {
  trainer().initialize();
  if (const PretrainedModel* from = starts_from()) load_initial_weights(trainer(), *from, config_);
}

void ClassificationTask::save_assets(const std::string& folder) const {
  if (!model_.family) return save_onnx_assets(folder, model_, *tokenizer_);
  save_pretrained_assets(folder, model_, *tokenizer_);
}

void export_classification_run(const std::string& folder, const std::string& out) {
  if (is_onnx_run(folder))
    fail_user("'" + folder + "' trained the network of an ONNX file; `linnet export RUN --onnx DIR` writes it again");
  export_pretrained_run(folder, out);
}

void OpenedTextClassifier::take_weights_into(ClassificationSession& session) const {
  take_model_weights(session, folder, "", [&](const ParameterLayout& layout, const ParameterTarget& parameters) {
    load_weights(layout, parameters);
  });
}

Evaluation evaluate_classification_run(const std::string& folder, const Config& config, const std::string& path,
                                       const std::string& split) {
  OpenedTextClassifier opened = open_text_classifier(folder);
  if (path.empty() && !opened.is_run) fail_user("'" + folder + "' is a model; --data names a text");
  std::string name = "'" + path + "'";
  LabelledText text;
  if (!path.empty()) {
    text = read_labelled_text(path);
  } else if (split == "valid") {
    name = "the validation text";
    text = load_texts(config).second;
  } else {
    const std::string file = file_of(config, config.data.test_tsv, "test_tsv");
    name = "'" + file + "'";
    text = read_labelled_text(file);
  }
  auto& classifier = opened.model.as<TextClassifier>();
  const LabelledSequences data =
      encode(text, *opened.tokenizer, opened.classes, longest_text(config, classifier), name);
  ClassificationSession session(config, classifier, opened.classes, false);
  opened.take_weights_into(session);
  return session.evaluate(data);
}

}  // namespace linnet
