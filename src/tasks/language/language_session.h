// A language model with what a command needs around it: its planned memory, and scoring of text.
#pragma once
#include <memory>
#include <string>
#include "config/config.h"
#include "data/examples/text/token_chunks.h"
#include "generation/generators.h"
#include "models/modules/causal_model.h"
#include "tasks/language/language_model.h"
#include "tasks/session.h"
#include "tasks/teacher.h"
#include "tasks/text_coder.h"
#include "training/run/training_task.h"

namespace linnet {

// The text of a language model as tokens: what to train on, what to choose by.

// How documents that follow one another in a stream are told apart (see ChunkOptions).
struct DocumentTokens {
  int32_t begin = -1;      // the token that begins each
  bool begin_ends = true;  // it is also what ends the document before it
};

struct LanguageText {
  TokenStream tokens;        // the first is only looked at: what is scored begins with the second
  int64_t words = 0;         // runs of what is not white space; 0 for token files
  bool packed = false;       // several documents
  DocumentTokens documents;  // with `packed`
};

struct LanguageData {
  std::shared_ptr<const TextCoder> coder;
  LanguageText train, valid;
};

// Reads `text` and `valid_text`, or the end of the former. With `coder` that one is used instead of a new one.
LanguageData load_language_data(const Config& config, std::shared_ptr<const TextCoder> coder);
// One file by itself: its first token has nothing before it and is not scored.
LanguageText load_language_text(const Config& config, const TextCoder& coder, const std::string& path);
// "valid" (as training has it) or "test" of a run's configuration.
LanguageText load_language_split(const Config& config, const TextCoder& coder, const std::string& split);

struct LanguageOptions {
  bool training = true;
  bool packed = false;
  DocumentTokens documents = {};  // with `packed`
  int64_t sample_length = 0;      // above 0: can generate
  bool verify_plans = true;
  std::shared_ptr<const Teacher> teacher = {};  // of which training learns too
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
  Evaluation evaluate(const LanguageText& text, const SharedWork& ranks = SharedWork::alone());

  const ChunkOptions chunks;
  const bool packed;
  const std::shared_ptr<CausalModel> model;
  std::unique_ptr<CausalGenerator> generator;  // null without sample_length
};

// `linnet eval` of a run or a model folder: of a file, or with `path` empty of the split the run's configuration names.
Evaluation evaluate_language_model(const OpenedLanguageModel& opened, const Config& config, const std::string& path,
                                   const std::string& split);
// `linnet eval` of a run of these tasks: of a file, or with `path` empty of what the run chose by or of its test text.
Evaluation evaluate_chats(const OpenedLanguageModel& opened, const Config& config, const std::string& path,
                          const std::string& split);
Evaluation evaluate_preferences(const OpenedLanguageModel& opened, const Config& config, const std::string& path,
                                const std::string& split);

}  // namespace linnet
