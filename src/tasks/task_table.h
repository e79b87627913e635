// What the program does with each kind of task: one row a kind. Commands ask the table and know no kind themselves.
#pragma once
#include "config/config.h"
#include "data/text/tokenizer.h"
#include "tasks/inference.h"
#include "tasks/predictor.h"
#include "tasks/session_task.h"
#include "training/report/report_page.h"
#include "training/run/training_run.h"

namespace linnet {
// `linnet inspect`: attention and attributions of a model for one text.
struct InspectOptions {
  std::string text;
  // To attribute: a class, a continuation, a translation, or a word for each mask. Empty: the model's own answer.
  std::optional<std::string> answer = {};
  int64_t steps = 32;  // points where gradients are taken for attributions
  int threads = 0;     // 0 uses all
};

// User error for a model without text input, and for texts without tokens or with more than kMostInspectedTokens.
Inspection inspect_model(const std::string& folder, const InspectOptions& options);
constexpr int64_t kMostInspectedTokens = 256;  // a page of GPT-2 with so many has 25 MB

Inspection inspect_language_model(const std::string& folder, const InspectOptions& options);
Inspection inspect_translation(const std::string& folder, const InspectOptions& options);
Inspection inspect_classifier(const std::string& folder, const InspectOptions& options);
Inspection inspect_masked_model(const std::string& folder, const InspectOptions& options);

// `linnet eval` by task: the requested examples, and the metrics on them.
struct EvaluationRequest : InferenceOptions {
  std::string folder;               // a run or a model folder
  std::vector<std::string> others;  // of translation: further members of an ensemble
  std::string split;                // "test" or "valid"; empty: as configured
  std::string source, target;       // files of translation pairs, instead of a split
  std::string data;                 // a file or folder of examples, instead of a split
};

struct EvaluationAnswer {
  TaskEvaluation result;
  std::vector<std::pair<std::string, std::variant<int64_t, std::string>>> facts;  // of the examples, for JSON
  std::string line;                                                               // for people
  std::string conditions;                                                         // that belong to it: "beam 4"
};

// `config` is the run's, or made for a model folder, with the request's options applied.
EvaluationAnswer evaluate_translation(const EvaluationRequest& request, const Config& config);
EvaluationAnswer evaluate_language(const EvaluationRequest& request, const Config& config);
EvaluationAnswer evaluate_masked(const EvaluationRequest& request, const Config& config);
EvaluationAnswer evaluate_texts(const EvaluationRequest& request, const Config& config);
EvaluationAnswer evaluate_images(const EvaluationRequest& request, const Config& config);

// A run's configuration, or one made from a model folder's contents.
Config evaluation_config(const std::string& folder);

std::unique_ptr<SessionTask> make_translation_task(const Config& config);
std::unique_ptr<SessionTask> make_language_task(const Config& config);
std::unique_ptr<SessionTask> make_chat_task(const Config& config);
std::unique_ptr<SessionTask> make_preference_task(const Config& config);
std::unique_ptr<SessionTask> make_masked_task(const Config& config);
std::unique_ptr<SessionTask> make_text_task(const Config& config);
std::unique_ptr<SessionTask> make_image_task(const Config& config);

// A null function has a text beside it that says why, after "run 'FOLDER' ".
struct TaskActions {
  TaskKind kind;
  std::unique_ptr<SessionTask> (*make)(const Config& config);
  EvaluationAnswer (*evaluate)(const EvaluationRequest& request, const Config& config);
  const char* no_translation;  // null: it translates
  std::unique_ptr<Scorer> (*score)(const std::string& folder, const InferenceOptions& options);
  const char* no_score;
  std::unique_ptr<Predictor> (*predict)(const std::string& folder, const InferenceOptions& options, int64_t rows);
  std::shared_ptr<const Tokenizer> (*tokenizer)(const Config& config, const std::string& folder, bool target);
  const char* no_tokenizer;
  Inspection (*inspect)(const std::string& folder, const InspectOptions& options);
  const char* no_inspection;
  void (*export_model)(const std::string& folder, const std::string& out);
};

const TaskActions& task_actions(const Config& config);

// User error if model.from is given and is no model folder. Checked before anything is read.
void check_first_model(const Config& config);

// Plans and binds everything; takes no planned memory. `from`: a run folder whose assets are used; empty: made anew.
// Sets config.train.micro_batches if 0: as few as the memory limit allows. Error(kUser) with figures if too large.
std::unique_ptr<TrainingTask> make_training_task(Config& config, const std::string& from);

// For a configuration of one process (of_one_shard()): allocates and loads the initial weights.
std::unique_ptr<TrainingTask> start_training_task(const Config& config, const std::string& from);

// A run folder's tokenizer; if it has two, `target` chooses the translations'. User error for a run without text.
std::shared_ptr<const Tokenizer> load_run_tokenizer(const std::string& folder, bool target);

// A run folder's description in lines, each ending in a newline. User error if it is no run.
std::string describe_run(const std::string& folder);
}  // namespace linnet
