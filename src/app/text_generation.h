// A model that writes: a language model loaded for one prompt, its memory planned for that prompt and what follows.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/generation_choice.h"
#include "generate/causal_generator.h"

namespace linnet {

class TextWriter {
 public:
  virtual ~TextWriter() = default;
  // Writes the texts; `hear` gets the first one piece by piece, in whole characters, and returns whether to go on.
  virtual std::vector<std::string> run(const std::function<bool(const std::string& piece)>& hear) = 0;
};

// Of a decoder that goes on from the prompt, or of an encoder-decoder that answers it (T5, Marian, runs of
// translation).
std::unique_ptr<TextWriter> open_text_writer(const std::string& folder, const std::string& prompt,
                                             const TextGenerationOptions& options);

class TextGeneration : public TextWriter {
 public:
  // Loads the model. User error for a prompt that does not fit.
  TextGeneration(const std::string& folder, const std::string& prompt, const TextGenerationOptions& options);

  std::vector<std::string> run(const std::function<bool(const std::string& piece)>& hear) override;

  double seconds() const { return seconds_; }  // of the last run, the prompt included
  int64_t tokens() const { return tokens_; }   // it wrote
  int64_t prompt_tokens() const { return static_cast<int64_t>(prompt_.size()); }

 private:
  OpenedLanguageModel opened_;
  const TextGenerationOptions options_;
  std::vector<int32_t> prompt_;
  const GenerationChoice choice_;
  ParameterLayout layout_;
  Store store_;
  std::unique_ptr<CausalGenerator> generator_;
  ThreadPool pool_;
  double seconds_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace linnet
