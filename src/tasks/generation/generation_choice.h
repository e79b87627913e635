// Generation settings: the user's, else the model author's (generation_config.json), else defaults.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "generation/beam_search.h"
#include "generation/sampling.h"
#include "generation/text_grammar.h"
#include "models/families/generation_config.h"
#include "tasks/language/language_model.h"
#include "tasks/model_load.h"
#include "tasks/translation/languages.h"

namespace linnet {
struct TextGenerationOptions : ModelLoad {
  // If unset, generation_config.json decides; if that has no value either, the default in the comment.
  std::optional<int64_t> max_tokens;                                 // 200
  std::optional<int64_t> beams;                                      // 1: sampling
  std::optional<double> temperature, top_p;                          // 1
  std::optional<int64_t> top_k;                                      // 0: all
  std::optional<double> repetition_penalty;                          // 1
  std::optional<double> frequency_penalty, presence_penalty, min_p;  // 0
  std::vector<std::pair<int32_t, double>> logit_bias;                // (token, added to its logit)
  std::shared_ptr<const TextGrammar> grammar;                        // null: any text
  std::optional<double> length_penalty;                              // 1
  uint64_t seed = 1;
  std::vector<std::string> stop;   // end a text before them
  bool log_probabilities = false;  // of generated tokens
  int64_t samples = 1;             // texts that continue the same prompt with different random draws
  bool no_cache = false, ignore_end = false;
  std::string adapter;       // of a request, see find_adapter()
  Languages languages = {};  // of a translation
};

struct GenerationChoice {
  int64_t max_tokens = 200, beams = 1;
  SamplingOptions sampling;
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::kLikely;
  bool forced_end = false;  // the last token is always the end (encoder-decoders)
  TextRules rules;          // of the model's author
  std::vector<int32_t> ends;
  bool default_temperature = false;  // neither the user nor the model's author set the temperature
};

// Besides the options: the author's generation_config.json in `folder`, and tokens that end a text or exist.
struct GenerationBasis {
  std::string folder;
  GenerationConfig author;
  std::vector<int32_t> ends;
  int64_t prompt_tokens = 0;
  bool warn = true;  // of unsupported settings by the model's author
};

// User error for options that exclude each other. Warns of settings by the author that Linnet does not support.
GenerationChoice choose_generation(const TextGenerationOptions& options, const GenerationBasis& basis);
}  // namespace linnet
