// An encoder-decoder that answers prompts: T5, Marian, or a run of translation.
#pragma once
#include <string>
#include <vector>

#include "models/families/generation_config.h"
#include "tasks/generation/text_model.h"
#include "tasks/translation/translation_model.h"

namespace linnet {

class SourceGeneration : public TextModel {
 public:
  SourceGeneration(const std::string& folder, const TextGenerationOptions& options);

  std::string decode(const std::vector<int32_t>& tokens) const override;
  std::string piece_of(int32_t token) const override;
  bool has_chat_template() const override { return false; }
  bool answers() const override { return true; }
  TextJob prepare_translation(const TextRequest& request) const override;

 private:
  TextJob prepare_job(const TextRequest& request, bool warn) const override;
  void plan_jobs(std::span<const TextJob> jobs, int64_t samples) override;
  void plan_any(const TextRoom& options) override;
  void load_model(const SourceOptions& plan);

  const OpenedTranslationModel opened_;
  const GenerationConfig makers_;  // what the model's author says of generation; of a run nothing
};

}  // namespace linnet
