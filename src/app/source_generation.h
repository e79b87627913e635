// An encoder-decoder that answers a prompt: T5, Marian, or a run of translation, its memory planned for that prompt.
#pragma once
#include "app/session.h"
#include "app/text_generation.h"

namespace linnet {

class SourceGeneration : public TextWriter {
 public:
  // Loads the model. User error for a prompt that does not fit, or options such a model has not.
  SourceGeneration(const std::string& folder, const std::string& prompt, const TextGenerationOptions& options);

  std::vector<std::string> run(const std::function<bool(const std::string& piece)>& hear) override;

 private:
  OpenedTranslationModel opened_;
  const TextGenerationOptions options_;
  std::vector<int32_t> source_;
  GenerationChoice choice_;
  ParameterLayout layout_;
  Store store_;
  std::unique_ptr<Generator> generator_;
  ThreadPool pool_;
};

}  // namespace linnet
