// `linnet eval`, task by task: which examples a request means, and how good the model is on them.
#pragma once
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tasks/inference.h"

namespace linnet {

struct EvaluationRequest : InferenceOptions {
  std::string folder;               // a run or a model folder
  std::vector<std::string> others;  // of translation: more of them, evaluated with it as one
  std::string split;                // "test" or "valid"; empty: what the configuration has
  std::string source, target;       // files of translation pairs, instead of a split
  std::string data;                 // a file or folder of examples, instead of a split
};

struct EvaluationAnswer {
  Evaluation result;
  std::vector<std::pair<std::string, std::variant<int64_t, std::string>>> facts;  // of the examples, for JSON
  std::string line;                                                               // for people
  std::string conditions;                                                         // that belong to it: "beam 4"
};

// `config` is the run's, or made up for a model folder, with the request's options applied.
EvaluationAnswer evaluate_translation(const EvaluationRequest& request, const Config& config);
EvaluationAnswer evaluate_language(const EvaluationRequest& request, const Config& config);
EvaluationAnswer evaluate_masked(const EvaluationRequest& request, const Config& config);
EvaluationAnswer evaluate_texts(const EvaluationRequest& request, const Config& config);
EvaluationAnswer evaluate_images(const EvaluationRequest& request, const Config& config);

// The configuration of a run, or one made up for a model folder by what it holds.
Config evaluation_config(const std::string& folder);

}  // namespace linnet
