// A model that writes: a language model loaded for one prompt, its memory planned for that prompt and what follows.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/language_model.h"
#include "generate/causal_generator.h"

namespace linnet {

struct TextGenerationOptions {
  int64_t max_tokens = 200;
  int64_t samples = 1;  // texts that go on from the same prompt, each by other draws
  int64_t beams = 1;
  SamplingOptions sampling;
  double length_penalty = 1;
  bool no_cache = false, ignore_end = false;
  int threads = 0;  // 0: all there are
};

class TextGeneration {
 public:
  // Loads the model. User error for a prompt that does not fit.
  TextGeneration(const std::string& folder, const std::string& prompt, const TextGenerationOptions& options);

  // Writes the texts; `hear` gets the first one piece by piece, in whole characters, and returns whether to go on.
  std::vector<std::string> run(const std::function<bool(const std::string& piece)>& hear);

  double seconds() const { return seconds_; }  // of the last run, the prompt included
  int64_t tokens() const { return tokens_; }   // it wrote
  int64_t prompt_tokens() const { return static_cast<int64_t>(prompt_.size()); }

 private:
  OpenedLanguageModel opened_;
  const TextGenerationOptions options_;
  std::vector<int32_t> prompt_;
  ParameterLayout layout_;
  Store store_;
  std::unique_ptr<CausalGenerator> generator_;
  ThreadPool pool_;
  double seconds_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace linnet
