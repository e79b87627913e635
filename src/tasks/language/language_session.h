// A language model with what a command needs around it: its planned memory, and scoring of text.
#pragma once
#include <memory>

#include "data/examples/text/token_chunks.h"
#include "generation/causal_generator.h"
#include "models/modules/causal_model.h"
#include "tasks/language/language_data.h"
#include "tasks/session.h"
#include "training/run/training_task.h"

namespace linnet {

struct LanguageOptions {
  bool training = true;
  bool packed = false;
  DocumentTokens documents = {};  // with `packed`
  int64_t sample_length = 0;      // above 0: can generate
  bool verify_plans = true;
};

class LanguageSession : public Session {
 public:
  // Plans everything; takes no memory yet.
  LanguageSession(const Config& config, std::shared_ptr<CausalModel> model, const LanguageOptions& options);

  void allocate() override;
  // A generator's steps read all weights with few rows.
  std::vector<Plan*> inference_plans() override {
    return generator ? std::vector<Plan*>() : Session::inference_plans();
  }
  // Loss and perplexity over all tokens of a text but its first, each scored once, in chunks that do not overlap.
  Evaluation evaluate(const LanguageText& text, SharedWork& ranks);
  Evaluation evaluate(const LanguageText& text);

  const ChunkOptions chunks;
  const bool packed;
  const std::shared_ptr<CausalModel> model;
  std::unique_ptr<CausalGenerator> generator;  // null without sample_length
};

}  // namespace linnet
