#include "app/task_table.h"

#include <algorithm>
#include <array>

#include "app/classification_task.h"
#include "app/image_task.h"
#include "app/language_task.h"
#include "app/masked_task.h"
#include "app/plan_parts.h"
#include "app/pretrained_run.h"
#include "app/run_tokenizer.h"
#include "app/translation_task.h"

namespace linnet {
namespace {

template <class Task>
std::unique_ptr<TrainingTask> train(const Config& config, const std::string& from) {
  return std::make_unique<Task>(config, from);
}

// Refuses, by the task it finds, what is no language model.
void export_language_run(const std::string& folder, const std::string& out) {
  export_language_model(open_language_model(folder), out);
}

constexpr std::array kActions{
    TaskActions{.kind = TaskKind::kTranslation,
                .train = train<TranslationTask>,
                .plan = plan_translation,
                .evaluate = evaluate_translation,
                .no_translation = nullptr,
                .score = open_translation_scorer,
                .no_score = nullptr,
                .classify = nullptr,
                .tokenizer = load_pair_tokenizer,
                .no_tokenizer = nullptr,
                .export_model = export_translation_run},
    TaskActions{.kind = TaskKind::kLanguage,
                .train = train<LanguageTask>,
                .plan = plan_language,
                .evaluate = evaluate_language,
                .no_translation = "learned to write text, not translation; `linnet generate` lets it",
                .score = open_language_scorer,
                .no_score = nullptr,
                .classify = nullptr,
                .tokenizer = load_text_tokenizer,
                .no_tokenizer = nullptr,
                .export_model = export_language_run},
    TaskActions{.kind = TaskKind::kMaskedLanguage,
                .train = train<MaskedTask>,
                .plan = plan_masked,
                .evaluate = evaluate_masked,
                .no_translation = "learned to find masked tokens, not translation",
                .score = nullptr,
                .no_score = "learned to find masked tokens, which gives a text no probability",
                .classify = nullptr,
                .tokenizer = load_text_tokenizer,
                .no_tokenizer = nullptr,
                .export_model = export_pretrained_run},
    TaskActions{.kind = TaskKind::kClassification,
                .train = train<ClassificationTask>,
                .plan = plan_classification,
                .evaluate = evaluate_classification,
                .no_translation = "learned to tell texts apart, not translation",
                .score = nullptr,
                .no_score = "is a classifier; `linnet predict` gives the probabilities of its classes",
                .classify = classify_texts,
                .tokenizer = load_text_tokenizer,
                .no_tokenizer = nullptr,
                .export_model = export_pretrained_run},
    TaskActions{.kind = TaskKind::kImages,
                .train = train<ImageTask>,
                .plan = plan_images,
                .evaluate = evaluate_images,
                .no_translation = "learned to tell images apart, not translation",
                .score = nullptr,
                .no_score = "is a classifier; `linnet predict` gives the probabilities of its classes",
                .classify = classify_images,
                .tokenizer = nullptr,
                .no_tokenizer = "reads images, not text: it has no tokenizer",
                .export_model = export_language_run},
};

}  // namespace

const TaskActions& task_actions(const Config& config) {
  return *std::ranges::find(kActions, task_kind(config), &TaskActions::kind);
}

}  // namespace linnet
