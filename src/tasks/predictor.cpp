#include "tasks/predictor.h"
#include "base/fail.h"
#include "base/log.h"
#include "tasks/images/image_session.h"
#include "tasks/task_table.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/texts/text_training.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
class PredictorOfTexts : public Predictor {
 public:
  PredictorOfTexts(const std::string& folder, const InferenceOptions& options, int64_t rows, bool pairs)
      : opened_(open_text_classifier(folder, parse_adapters(options.adapters))), task_(text_task(opened_)) {
    if (!opened_.is_run) opened_.pairs = opened_.pairs || pairs;
    apply(options, opened_.config, folder);
    opened_.config.data.batch_size = rows;
    task_.set_up(opened_.model, opened_.config, {}, nullptr);
    session_ = std::make_unique<TextSession>(
        opened_.config, task_, opened_.model.as<TextClassifier>(), opened_.outputs, opened_.pairs, false);
    take_model_weights(*session_, folder, "", opened_.weights());
  }
  bool takes_pairs() const override { return opened_.pairs || task_.may_be_pairs(); }
  void for_each_text(const std::string& path, const DataConfig& named, const UseText& use) const override {
    DataConfig columns = opened_.config.data;
    if (!named.text_column.empty()) columns.text_column = named.text_column;
    if (!named.pair_column.empty()) columns.pair_column = named.pair_column;
    task_.for_each_text(path, columns, opened_.pairs, use);
  }
  int64_t outputs() const override { return task_.choices(opened_.outputs, opened_.config); }
  std::vector<Answer> answer(const std::vector<std::string>& texts, int64_t top) override {
    if (texts.empty()) return {};
    TextRecords records{.records = {}, .pairs = opened_.pairs};
    for (const std::string& text : texts) {
      TextRecord& record = records.records.emplace_back();
      const size_t tab = takes_pairs() ? text.find('\t') : text.npos;
      if (opened_.pairs && tab == text.npos)
        fail_user("the model takes two texts with a tab between them, and '", text.substr(0, 60), "' has none");
      record.text = text.substr(0, tab);
      if (tab != text.npos) record.pair = text.substr(tab + 1);
    }
    const TextExamples examples = task_.encode(records, *opened_.tokenizer, opened_.outputs,
        opened_.model.as<TextClassifier>(), opened_.config, session_->lengths.back(), TextUse::kAsk);
    return task_.answers(records, examples, session_->logits(examples), opened_.outputs, opened_.config, top);
  }
  std::vector<std::string> heading(int64_t top) const override { return task_.heading(top); }

 private:
  OpenedTextClassifier opened_;
  const TextTask& task_;
  std::unique_ptr<TextSession> session_;
};

class PredictorOfImages : public Predictor {
 public:
  PredictorOfImages(
      const std::string& folder, Config config, ImageFormat format, const InferenceOptions& options, int64_t rows)
      : format_(std::move(format)), task_(text_task(format_.problem)), columns_(config.data) {
    apply(options, config, folder);
    config.data.batch_size = rows;
    fit_ = image_fit(config.data.image_fit);
    session_ = std::make_unique<ImageSession>(config, format_, false);
    take_image_weights(*session_, folder);
  }
  int64_t outputs() const override { return std::ssize(format_.class_names); }
  bool takes_images() const override { return true; }
  std::vector<Answer> answer(const std::vector<std::string>& paths, int64_t top) override {
    if (paths.empty()) return {};
    ImageDataset images{.count = static_cast<int64_t>(paths.size()),
        .height = format_.height,
        .width = format_.width,
        .channels = format_.channels};
    images.class_names = format_.class_names;
    images.labels.assign(paths.size(), -1);
    if (format_.problem != TextProblem::kOneClass) images.numbers.resize(paths.size() * format_.class_names.size());
    images.files = {.paths = paths, .fit = fit_, .channels = format_.channels};
    const size_t outputs = format_.class_names.size();
    const std::vector<float> logits = session_->logits(images);
    std::vector<Answer> answers;
    for (size_t i = 0; i < paths.size(); ++i)
      answers.push_back(
          task_.answer(paths[i], {}, std::span(logits).subspan(i * outputs, outputs), format_.class_names, top));
    return answers;
  }
  std::vector<std::string> heading(int64_t top) const override { return task_.heading(top); }
  void for_each_text(const std::string& path, const DataConfig& named, const UseText& use) const override {
    DataConfig columns = columns_;
    if (!named.text_column.empty()) columns.text_column = named.text_column;
    for_each_image(path, columns, use);
  }

 private:
  ImageFormat format_;
  const TextTask& task_;
  const DataConfig columns_;
  ImageFit fit_ = ImageFit::kCrop;
  std::unique_ptr<ImageSession> session_;
};

// A transformers ViT, whose image processor scales both sides without cropping.
std::unique_ptr<Predictor> predict_by_vit(const std::string& folder, const InferenceOptions& options, int64_t rows) {
  if (!options.adapters.empty()) fail_user("--adapter is for models of text, and '", folder, "' is a ViT");
  Config config;
  config.data.task = "images", config.data.image_fit = "stretch";
  config.model.architecture = "vit";
  return std::make_unique<PredictorOfImages>(folder, config, vit_folder_format(folder), options, rows);
}
}  // namespace

std::unique_ptr<Predictor> predict_texts(const std::string& folder, const InferenceOptions& options, int64_t rows) {
  return std::make_unique<PredictorOfTexts>(folder, options, rows, false);
}

std::unique_ptr<Predictor> predict_images(const std::string& folder, const InferenceOptions& options, int64_t rows) {
  return std::make_unique<PredictorOfImages>(
      folder, RunFolder(folder).load_config(), ImageFormat::load(folder), options, rows);
}

std::unique_ptr<Predictor> open_predictor(
    const std::string& folder, const InferenceOptions& options, int64_t rows, bool pairs) {
  if (is_vit_folder(folder)) return predict_by_vit(folder, options, rows);
  const RunFolder run(folder);
  const bool adapted = !options.adapters.empty() && !run.has_config();
  if (adapted || is_text_classifier_folder(folder) || is_sentence_folder(folder))
    return std::make_unique<PredictorOfTexts>(folder, options, rows, pairs);
  if (!run.has_config() && is_pretrained_folder(folder))
    fail_user("'", folder, "' is a ", ConfigFile(folder + "/config.json").text("model_type"),
        " model without a classifier; `linnet train classify --set model.from=", folder, "` makes one");
  const Config config = run.load_config();
  if (const auto predict = task_actions(config).predict) return predict(folder, options, rows);
  fail_user("run '", folder, "' is no classifier: its task is \"", config.data.task,
      "\"; `linnet score` gives probabilities of texts");
}
}  // namespace linnet
