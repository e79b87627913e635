#include "serving/loaded/loaded_model.h"
#include "base/fail.h"
#include "base/lost_pages.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/translation/translation_model.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
ModelKind kind_of_run(const std::string& folder, const Config& config) {
  switch (task_kind(config)) {
    case TaskKind::kTranslation: return ModelKind::kTranslation;
    case TaskKind::kLanguage: return ModelKind::kLanguage;
    case TaskKind::kTexts: return config.data.task == "embeddings" ? ModelKind::kEmbedder : ModelKind::kClassifier;
    case TaskKind::kMaskedLanguage: return ModelKind::kEmbedder;
    case TaskKind::kImages: break;
  }
  fail_user("run '", folder, "' classifies images; `linnet predict` does that");
}

// Fails if a file lost pages while it was read, which leaves zeros for weights.
std::unique_ptr<LoadedModel> unless_pages_are_lost(std::unique_ptr<LoadedModel> model, uint64_t lost_before) {
  if (count_lost_pages() != lost_before) fail_user("'", model->folder, "': a file was cut short while it was read");
  return model;
}
}  // namespace

const char* model_kind_name(ModelKind kind) {
  static constexpr const char* kNames[] = {"language", "translation", "classifier", "embedder", "spans"};
  return kNames[static_cast<size_t>(kind)];
}

ModelKind model_kind(const std::string& folder) {
  if (!file_exists(folder)) fail_user("there is no model '", folder, "'", missing_model_hint(folder));
  const RunFolder run(folder);
  if (run.has_config() || !is_pretrained_folder(folder)) return kind_of_run(folder, run.load_config());
  if (is_text_classifier_folder(folder)) return ModelKind::kClassifier;
  const ConfigFile config(folder + "/config.json");
  const Family& family = find_family(config);
  switch (family.kind) {
    case FamilyKind::kDecoder: return ModelKind::kLanguage;
    case FamilyKind::kEncoder: return ModelKind::kEmbedder;
    case FamilyKind::kEncoderDecoder: return ModelKind::kTranslation;
    case FamilyKind::kImages: break;
  }
  fail_user("'", folder, "' classifies images; `linnet predict` does that");
}

std::unique_ptr<LoadedModel> open_loaded_model(const std::string& folder, const LoadedModelOptions& options) {
  const uint64_t lost_before = count_lost_pages();
  auto model = std::make_unique<LoadedModel>();
  model->folder = folder, model->kind = model_kind(folder);
  if (!options.draft.empty() && model->kind != ModelKind::kLanguage)
    fail_user("'", folder, "' is no language model, so it has no draft model");
  // A classifier's adapters bring its head.
  if (model->kind == ModelKind::kEmbedder && are_classifiers(parse_adapters(options.adapters)))
    model->kind = ModelKind::kClassifier;
  if (model->kind == ModelKind::kClassifier && options.open_spans && marks_spans(folder)) {
    model->kind = ModelKind::kSpans, model->spans = options.open_spans(folder, options);
    return unless_pages_are_lost(std::move(model), lost_before);
  }
  if (model->kind == ModelKind::kClassifier || model->kind == ModelKind::kEmbedder) {
    const auto open = model->kind == ModelKind::kEmbedder ? open_embedder : open_row_classifier;
    model->rows = std::make_unique<RowWorker>(open(folder, options), options.limits.waiting);
    return unless_pages_are_lost(std::move(model), lost_before);
  }
  std::unique_ptr<TextModel> text = open_text_model(folder, {options});
  text->plan_resident(options.text, options.check);
  model->text = std::make_unique<TextWorker>(std::move(text), options.limits);
  return unless_pages_are_lost(std::move(model), lost_before);
}
}  // namespace linnet
