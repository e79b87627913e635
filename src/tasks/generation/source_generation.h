// An encoder-decoder that answers prompts: T5, Marian, or a run of translation.
#pragma once
#include "tasks/generation/text_generation.h"
#include "tasks/translation/translation_session.h"

namespace linnet {

class SourceGeneration : public TextWriter {
 public:
  // Loads the model. User error, which names the request, for a prompt that does not fit, or settings that such a model
  // does not have.
  SourceGeneration(const std::string& folder, const std::vector<TextRequest>& requests);

  std::vector<WrittenText> write(size_t request, const TextListener& hear) override;
  const std::vector<int32_t>& prompt(size_t request) const override { return jobs_[request].source; }

 private:
  struct Job {
    std::vector<int32_t> source;
    GenerationChoice choice;
    std::vector<std::string> stops;
    bool log_probabilities = false;
  };
  void check_search(const TextRequest& request, const Job& job) const;
  GenerateOptions plan_for(int64_t beams) const;
  std::vector<WrittenText> search(const Job& job, const TextListener& hear);

  OpenedTranslationModel opened_;
  const TextGenerationOptions options_;
  std::vector<Job> jobs_;
  ParameterLayout layout_;
  Store store_;
  std::map<int64_t, std::unique_ptr<Generator>, std::greater<>> generators_;  // by beams
  ThreadPool pool_;
};

}  // namespace linnet
