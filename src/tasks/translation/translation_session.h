// An encoder-decoder in planned memory, with tokenizers and what decodes its translations.
#pragma once
#include <memory>

#include "data/buckets.h"
#include "generate/generator.h"
#include "tasks/session.h"
#include "tasks/translation/translation_model.h"

namespace linnet {

struct GenerationNeeds {
  int64_t beams = 1, sentences = 32;
};

struct SessionOptions {
  bool training = true;
  std::vector<BatchShape> shapes;           // of batches to train on (or only evaluate)
  std::vector<GenerationNeeds> generation;  // the largest first
  bool verify_plans = true;                 // off when only sizes are wanted
};

class TranslationSession : public Session {
 public:
  // Plans everything; takes no memory yet, so that its size can be printed or refused.
  TranslationSession(const Config& config, const TranslationModel& model, SessionOptions options);

  void allocate() override;

  const Config config;
  const TokenizerPair tokenizers;
  const std::shared_ptr<EncoderDecoder> model;
  std::vector<std::unique_ptr<Generator>> generators;
  const std::vector<BatchShape> shapes;
};

}  // namespace linnet
