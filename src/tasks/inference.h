// A trained run, loaded to translate or to be evaluated.
#pragma once
#include "tasks/model_load.h"
#include "tasks/translation/translation_session.h"

namespace linnet {

struct InferenceOptions : ModelLoad {
  int64_t beams = 0;                                  // 0: the configuration's
  Languages languages = {};                           // of translation; what is empty is as the configuration says
  std::shared_ptr<ActivationObserver> observer = {};  // of what linear layers read
};

// Commands compute with the instruction set that a run was trained with, and for other models with the best. What is
// opened in a process that has models already leaves it as it is: their weights are laid out for it.
void use_isa_of(const std::string& folder);

// take_weights() of the model in `folder`, which may be packed: then its file becomes the session's memory if it can.
void take_model_weights(Session& session, const std::string& folder, const std::string& advice,
                        const LoadWeights& load);

// Loads the best models of run folders, which are evaluated as one, for a set of pairs: the session has batch shapes
// for all of them.
struct LoadedEvaluation {
  LoadedEvaluation(const std::vector<std::string>& folders, Config config, ParallelText text);

  Evaluation run();

  std::unique_ptr<EvaluationSet> set;
  std::unique_ptr<Buckets> buckets;
  std::unique_ptr<TranslationSession> session;
};

struct Translation {
  std::string text;
  double score;
};

class Translator {
 public:
  // With several folders the mean of the models' probabilities decides. User error for models that do not go together.
  Translator(const std::vector<std::string>& folders, const Config& config,
             const std::vector<AdapterFolder>& adapters = {});

  // The `n_best` best translations of each line, in the order of the lines. Lines beyond longest() tokens are cut.
  std::vector<std::vector<Translation>> translate(const std::vector<std::string>& lines, int n_best);
  int64_t cut_lines() const { return cut_lines_; }
  double search_seconds() const { return search_seconds_; }               // of all translate(), without tokenization
  int64_t longest() const { return session_->config.model.max_seq_len; }  // of the shortest model

 private:
  std::unique_ptr<TranslationSession> session_;
  int64_t cut_lines_ = 0;
  double search_seconds_ = 0;
};

// `folder`: the model, which may be packed with quantized weights, or have scales of activations.
void apply(const InferenceOptions& options, Config& config, const std::string& folder);
// A run's configuration, or one made up for a model folder, with the options of the command line.
Config inference_config(const std::string& folder, const InferenceOptions& options);

}  // namespace linnet
