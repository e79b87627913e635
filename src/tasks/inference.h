// Trained runs, loaded to translate or for evaluation.
#pragma once
#include "tasks/model_load.h"
#include "tasks/translation/translation_session.h"

namespace linnet {
struct InferenceOptions : ModelLoad {
  int64_t beams = 0;                                  // 0: the configuration's
  Languages languages = {};                           // of translation; empty ones are the configuration's
  std::shared_ptr<ActivationObserver> observer = {};  // of the inputs of linear layers
};

// Uses the instruction set that a run was trained with, or the best for other models. No-op in a process that has
// models, as their weights are laid out for the current one.
void use_isa_of(const std::string& folder);

// take_weights() for a model that may be packed: then the session maps its file if it can.
void take_model_weights(
    Session& session, const std::string& folder, const std::string& advice, const LoadWeights& load);

// Evaluates the best models of run folders as an ensemble.
TaskEvaluation evaluate_pairs(const std::vector<std::string>& folders, Config config, ParallelText text);

struct Translation {
  std::string text;
  double score;
};

class Translator {
 public:
  // Several folders average the models' probabilities. User error for models that do not go together.
  Translator(
      const std::vector<std::string>& folders, const Config& config, const std::vector<AdapterFolder>& adapters = {});

  // The `n_best` best translations of each line, in line order. Lines beyond longest() tokens are cut.
  std::vector<std::vector<Translation>> translate(const std::vector<std::string>& lines, int n_best);
  int64_t cut_lines() const { return cut_lines_; }
  double search_seconds() const { return search_seconds_; }               // of all translate(), without tokenization
  int64_t longest() const { return session_->config.model.max_seq_len; }  // of the shortest model

 private:
  std::unique_ptr<TranslationSession> session_;
  int64_t cut_lines_ = 0;
  double search_seconds_ = 0;
};

// `folder`: the model, which may be packed with quantized weights or have activation scales.
void apply(const InferenceOptions& options, Config& config, const std::string& folder);
// A run's configuration, or one made for a model folder, with the command line's options.
Config inference_config(const std::string& folder, const InferenceOptions& options);
}  // namespace linnet
