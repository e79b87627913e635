#include "tasks/task_table.h"
#include <algorithm>
#include <array>
#include "base/fail.h"
#include "base/files.h"
#include "models/families/pretrained.h"
#include "onnx/network.h"
#include "tasks/images/image_session.h"
#include "tasks/language/language_model.h"
#include "tasks/masked/masked_task.h"
#include "tasks/texts/text_training.h"
#include "tasks/translation/tokenizer_pair.h"
#include "tasks/translation/translation_task.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
template <class Task> std::unique_ptr<SessionTask> make(const Config& config) { return std::make_unique<Task>(config); }

std::unique_ptr<SessionTask> make_decoder_task(const Config& config) {
  const std::string& task = config.data.task;
  return task == "chat"          ? make_chat_task(config)
         : task == "preferences" ? make_preference_task(config)
                                 : make_language_task(config);
}

// open_language_model() refuses folders that are no language model.
void export_language_run(const std::string& folder, const std::string& out) {
  export_language_model(open_language_model(folder), out);
}

constexpr std::array kActions{
    TaskActions{.kind = TaskKind::kTranslation,
        .make = make<TranslationTask>,
        .evaluate = evaluate_translation,
        .score = open_translation_scorer,
        .tokenizer = load_pair_tokenizer,
        .inspect = inspect_translation,
        .export_model = export_translation_run},
    TaskActions{.kind = TaskKind::kLanguage,
        .make = make_decoder_task,
        .evaluate = evaluate_language,
        .no_translation = "learned to write text, not translation; `linnet generate` lets it",
        .score = open_language_scorer,
        .tokenizer = load_text_tokenizer,
        .inspect = inspect_language_model,
        .export_model = export_language_run},
    TaskActions{.kind = TaskKind::kMaskedLanguage,
        .make = make_masked_task,
        .evaluate = evaluate_masked,
        .no_translation = "learned to find masked tokens, not translation",
        .no_score = "learned to find masked tokens, which gives a text no probability",
        .tokenizer = load_text_tokenizer,
        .inspect = inspect_masked_model,
        .export_model = export_pretrained_run},
    TaskActions{.kind = TaskKind::kTexts,
        .make = make<TextTraining>,
        .evaluate = evaluate_texts,
        .no_translation = "learned to label texts, not translation",
        .no_score = "is a classifier; `linnet predict` gives the probabilities of its classes",
        .predict = predict_texts,
        .tokenizer = load_text_tokenizer,
        .inspect = inspect_classifier,
        .export_model = export_classification_run},
    TaskActions{.kind = TaskKind::kImages,
        .make = make_image_task,
        .evaluate = evaluate_images,
        .no_translation = "learned to tell images apart, not translation",
        .no_score = "is a classifier; `linnet predict` gives the probabilities of its classes",
        .predict = predict_images,
        .no_tokenizer = "reads images, not text: it has no tokenizer",
        .no_inspection = "classifies images; `linnet inspect` looks at models of text",
        .export_model = export_image_run},
};

// Checked before anything is read: `model.from` is a model folder.
void check_model_folder(const std::string& folder) {
  const std::string named = "model.from = \"" + folder + "\": ";
  if (!file_exists(folder)) fail_user(named, "there is no such folder (--set model.from=FOLDER)");
  if (RunFolder(folder).has_config())
    fail_user(named, "this is a run folder; --init starts from one, and `linnet export` makes a model folder of it");
  if (!is_pretrained_folder(folder))
    fail_user(named, "not a model folder, which has a config.json with a \"model_type\"");
}
}  // namespace

const TaskActions& task_actions(const Config& config) {
  return *std::ranges::find(kActions, task_kind(config), &TaskActions::kind);
}

namespace {
std::unique_ptr<SessionTask> open_task(const Config& config, const std::string& from) {
  // load_onnx() reports errors of network files.
  const bool is_network = task_kind(config) == TaskKind::kImages ||
                          (task_kind(config) == TaskKind::kTexts && is_onnx_path(config.model.from));
  if (from.empty() && !config.model.from.empty() && !is_network) check_model_folder(config.model.from);
  std::unique_ptr<SessionTask> task = task_actions(config).make(config);
  task->open(from);
  return task;
}
}  // namespace

std::unique_ptr<TrainingTask> make_training_task(Config& config, const std::string& from) {
  std::unique_ptr<SessionTask> task = open_task(of_one_shard(config), from);
  const bool may_cut = config.train.micro_batches == 0;
  if (may_cut) config.train.micro_batches = 1;
  for (;;) {
    try {
      task->prepare(Capacity::kMustSuffice);
      return task;
    } catch (const DoesNotFit&) {
      if (!may_cut || !double_micro_batches(config)) throw;
      task->set_batches(of_one_shard(config));
    }
  }
}

std::unique_ptr<TrainingTask> start_training_task(const Config& config, const std::string& from) {
  std::unique_ptr<SessionTask> task = open_task(config, from);
  task->prepare(Capacity::kMustSuffice);
  task->take_memory();
  task->initialize();
  return task;
}

std::shared_ptr<const Tokenizer> load_pair_tokenizer(const Config& config, const std::string& folder, bool target) {
  const TokenizerPair pair = load_tokenizers(config, folder);
  return target ? pair.target : pair.source;
}

std::shared_ptr<const Tokenizer> load_text_tokenizer(const Config&, const std::string& folder, bool) {
  if (file_exists(folder + "/tokenizer")) return open_run_tokenizer(folder);
  if (file_exists(folder + "/tokenizer.numbers"))
    fail_user("run '", folder, "' was trained on token numbers: it has no tokenizer");
  return load_tokenizer(folder, "tokenizer");
}

std::shared_ptr<const Tokenizer> load_run_tokenizer(const std::string& folder, bool target) {
  const Config config = RunFolder(folder).load_config();
  const TaskActions& task = task_actions(config);
  if (!task.tokenizer) fail_user("run '", folder, "' ", task.no_tokenizer);
  return task.tokenizer(config, folder, target);
}
}  // namespace linnet
