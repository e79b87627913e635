// A decoder-only model that goes on from prompts.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/text/chat/chat_template.h"
#include "models/families/generation_config.h"
#include "tasks/generation/text_model.h"
#include "tasks/language/language_model.h"
#include "tasks/translation/translation_model.h"

namespace linnet {

class TextGeneration : public TextModel {
 public:
  TextGeneration(const std::string& folder, const TextGenerationOptions& options);
  ~TextGeneration() override;

  std::string decode(const std::vector<int32_t>& tokens) const override { return opened_.coder->decode(tokens); }
  std::string piece_of(int32_t token) const override;
  bool has_chat_template() const override { return template_.has_value(); }
  bool answers() const override { return false; }

 private:
  TextJob prepare_job(const TextRequest& request, bool warn) const override;
  void plan_jobs(std::span<const TextJob> jobs, int64_t samples) override;
  void plan_any(const TextRoom& options) override;
  std::vector<int32_t> encode_prompt(const TextRequest& request) const;
  std::shared_ptr<const TokenTexts> token_texts() const;
  void encode_chat(const TextRequest& request, std::vector<int32_t>& ids) const;
  void load_model(CausalOptions plan, bool many);
  void allocate_draft() override;

  struct Draft;

  const OpenedLanguageModel opened_;
  const GenerationConfig makers_;  // what the model's author says of generation; of a run nothing
  std::optional<ChatTemplate> template_;
  std::string template_error_;  // why there is none
  std::unique_ptr<Draft> draft_;
  mutable std::once_flag texts_made_;
  mutable std::shared_ptr<const TokenTexts> texts_;  // made for the first request that has a grammar
};

// An encoder-decoder that answers prompts: T5, Marian, or a run of translation.

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
