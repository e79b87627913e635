#include "tasks/classifier.h"

#include "base/error.h"
#include "base/log.h"
#include "engine/kernels/isa.h"
#include "training/run/run_folder.h"
#include "tasks/classification/classification_task.h"
#include "tasks/images/image_task.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {

class ClassifierOfTexts : public Classifier {
 public:
  ClassifierOfTexts(const std::string& folder, const InferenceOptions& options, int64_t rows)
      : opened_(open_text_classifier(folder, parse_adapters(options.adapters))) {
    apply(options, opened_.config, folder);
    force_isa(opened_.config.train.isa);
    opened_.config.data.batch_size = rows;
    session_ = std::make_unique<ClassificationSession>(opened_.config, opened_.model.as<TextClassifier>(),
                                                       opened_.classes, false);
    opened_.take_weights_into(*session_);
  }
  const std::vector<std::string>& classes() const override { return opened_.classes; }
  bool takes_images() const override { return false; }
  std::vector<double> predict(const std::vector<std::string>& texts) override {
    if (texts.empty()) return {};
    LabelledSequences data;
    const EncodeOptions options{.max_length = session_->lengths.back(), .offsets = false};
    for (const std::string& text : texts) data.tokens.push_back(opened_.tokenizer->encode(text, options).ids);
    data.labels.assign(texts.size(), -1);
    return softmax_rows(session_->logits(data), classes().size());
  }

 private:
  OpenedTextClassifier opened_;
  std::unique_ptr<ClassificationSession> session_;
};

class ClassifierOfImages : public Classifier {
 public:
  ClassifierOfImages(const std::string& folder, Config config, ImageFormat format, const InferenceOptions& options,
                     int64_t rows)
      : format_(std::move(format)) {
    apply(options, config, folder);
    force_isa(config.train.isa);
    config.data.batch_size = rows;
    fit_ = image_fit(config.data.image_fit);
    session_ = std::make_unique<ImageSession>(config, format_, false);
    take_image_weights(*session_, folder);
  }
  const std::vector<std::string>& classes() const override { return format_.class_names; }
  bool takes_images() const override { return true; }
  std::vector<double> predict(const std::vector<std::string>& paths) override {
    if (paths.empty()) return {};
    ImageDataset images{.count = static_cast<int64_t>(paths.size()),
                        .height = format_.height,
                        .width = format_.width,
                        .channels = format_.channels};
    images.class_names = format_.class_names;
    images.labels.assign(paths.size(), -1);
    images.files = {.paths = paths, .fit = fit_, .channels = format_.channels};
    return softmax_rows(session_->logits(images), classes().size());
  }

 private:
  ImageFormat format_;
  ImageFit fit_ = ImageFit::kCrop;
  std::unique_ptr<ImageSession> session_;
};

// A ViT of transformers, whose image processor scales both sides and cuts nothing off.
std::unique_ptr<Classifier> classify_by_vit(const std::string& folder, const InferenceOptions& options, int64_t rows) {
  if (!options.adapters.empty()) fail_user("--adapter is for models of text, and '" + folder + "' is a ViT");
  Config config;
  config.data.task = "images", config.data.image_fit = "stretch";
  config.model.architecture = "vit";
  return std::make_unique<ClassifierOfImages>(folder, config, vit_folder_format(folder), options, rows);
}

}  // namespace

std::unique_ptr<Classifier> classify_texts(const std::string& folder, const InferenceOptions& options, int64_t rows) {
  return std::make_unique<ClassifierOfTexts>(folder, options, rows);
}

std::unique_ptr<Classifier> classify_images(const std::string& folder, const InferenceOptions& options, int64_t rows) {
  return std::make_unique<ClassifierOfImages>(folder, RunFolder(folder).load_config(), ImageFormat::load(folder),
                                              options, rows);
}

std::unique_ptr<Classifier> open_classifier(const std::string& folder, const InferenceOptions& options, int64_t rows) {
  if (is_vit_folder(folder)) return classify_by_vit(folder, options, rows);
  const RunFolder run(folder);
  const bool adapted = !options.adapters.empty() && !run.has_config();
  if (adapted || is_text_classifier_folder(folder)) return classify_texts(folder, options, rows);
  if (!run.has_config() && is_pretrained_folder(folder))
    fail_user("'" + folder + "' is a " + ConfigFile(folder + "/config.json").text("model_type") +
              " model without a classifier; `linnet train classify --set model.from=" + folder + "` makes one");
  const Config config = run.load_config();
  if (const auto classify = task_actions(config).classify) return classify(folder, options, rows);
  fail_user("run '" + folder + "' is no classifier: its task is \"" + config.data.task +
            "\"; `linnet score` gives probabilities of texts");
}

}  // namespace linnet
