// A language model in planned memory, with evaluation of texts.
#pragma once
#include "config/config.h"
#include "data/examples/text/token_chunks.h"
#include "generation/engine.h"
#include "models/modules/causal_model.h"
#include "tasks/language/language_model.h"
#include "tasks/session_task.h"
#include "tasks/teacher.h"
#include "tasks/text_coder.h"
#include "training/run/training_run.h"

namespace linnet {
// How consecutive documents of a stream are told apart (see ChunkOptions).
struct DocumentTokens {
  int32_t begin = -1;      // the token that begins each
  bool begin_ends = true;  // it also ends the document before it
};

struct LanguageText {
  TokenStream tokens;        // the first is only context: scores begin with the second
  int64_t words = 0;         // separated by white space; 0 for token files
  bool packed = false;       // several documents
  DocumentTokens documents;  // with `packed`
};

struct LanguageData {
  std::shared_ptr<const TextCoder> coder;
  LanguageText train, valid;
};

// Reads `text` and `valid_text`, or the end of the former. Makes a tokenizer unless `coder` is given.
LanguageData load_language_data(const Config& config, std::shared_ptr<const TextCoder> coder);
// For `linnet eval`: the text that evaluated_text() names, or what training holds out.
LanguageText load_evaluated_text(
    const Config& config, const TextCoder& coder, const std::string& path, const std::string& split);

struct LanguageOptions {
  bool training = true, packed = false;
  DocumentTokens documents = {};  // with `packed`
  int64_t sample_length = 0;      // above 0: can generate
  bool verify_plans = true;
  std::shared_ptr<const Teacher> teacher = {};  // of distillation
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
  // Loss and perplexity over all tokens but the first, each scored once, in chunks that do not overlap.
  TaskEvaluation evaluate(const LanguageText& text, const SharedWork& ranks = SharedWork::alone());

  const ChunkOptions chunks;
  const bool packed;
  const std::shared_ptr<CausalModel> model;
  std::unique_ptr<CausalGenerator> generator;  // null without sample_length
};

// `linnet eval` of a run or model folder, on the file `path`, or if empty on the split that the configuration names.
TaskEvaluation evaluate_language_model(
    const std::string& folder, const Config& config, const std::string& path, const std::string& split);
// `linnet eval` of a run of these tasks, on the file `path`, or if empty on its validation or test text.
TaskEvaluation evaluate_chats(
    const OpenedLanguageModel& opened, const Config& config, const std::string& path, const std::string& split);
TaskEvaluation evaluate_preferences(
    const OpenedLanguageModel& opened, const Config& config, const std::string& path, const std::string& split);
}  // namespace linnet
