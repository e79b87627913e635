// What the program does with each kind of task: one row a kind. A command asks the table and knows no kind itself.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "config/config.h"
#include "data/text/tokenizer.h"
#include "tasks/evaluate_command.h"
#include "tasks/inspection/inspect.h"
#include "tasks/predictor.h"
#include "tasks/scorer.h"
#include "tasks/session_task.h"
#include "training/run/training_task.h"

namespace linnet {

// A function that is null has a text beside it that says why, after "run 'FOLDER' ".
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

// Plans and binds everything; takes no planned memory yet. `from`: a run folder whose assets are taken instead of made
// anew; empty: none. Where config.train.micro_batches is 0, it is settled: as few as fit into the limit of memory.
// Throws Error(kUser), with the figures, for what the machine cannot hold.
std::unique_ptr<TrainingTask> make_training_task(Config& config, const std::string& from);

// Of a configuration whose batches are those of one process (of_one_shard()), with its memory taken and its weights as
// training begins.
std::unique_ptr<TrainingTask> start_training_task(const Config& config, const std::string& from);

}  // namespace linnet
