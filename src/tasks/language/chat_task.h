// Fine-tuning a language model on conversations, of which it learns the assistant's turns.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "data/examples/text/packed_rows.h"
#include "data/text/pretrained_tokenizer.h"
#include "tasks/language/language_model.h"
#include "tasks/language/language_session.h"
#include "tasks/session_task.h"

namespace linnet {

// Conversations as tokens of which a language model learns the assistant's.

// Reads JSON lines: {"messages": [{"role", "content"}, ...]}, {"prompt", "completion"} (texts or lists of messages), or
// {"conversations": [{"from", "value"}, ...]} (ShareGPT). Each is rendered by the chat template of `tokenizer`; learned
// are the tokens of the assistant's turns, up to what ends them. A conversation beyond `longest` tokens is cut there;
// one without anything to learn is left out; the log counts both. `folder` (the tokenizer's) and
// `why_cut` are for messages. User error,
// naming the line, for roles that the template refuses and templates that rewrite earlier turns.
std::vector<TargetedTokens> read_chats(const std::string& path, const PretrainedTokenizer& tokenizer,
                                       const std::string& folder, int64_t longest,
                                       const std::string& why_cut);

class ChatTask : public SessionTask {
 public:
  explicit ChatTask(const Config& config) : SessionTask(config) {}

  void open(const std::string& from) override;
  std::string assume(const DataAtHand& data) override;
  DataAtHand data_at_hand(bool exact) const override;
  std::unique_ptr<Session> make_session(const Config& config, bool verify) override;
  BatchSource& batches() override { return *rows_; }
  Evaluation evaluate(SharedWork& ranks) override;
  void save_assets(const std::string& folder) const override { language_.save_assets(folder); }

  int64_t most() const override { return count_; }
  uint64_t assumed_bytes() const override { return assumed_bytes_; }
  std::string batches_text(const Session& session) const override;
  const char* shorter_key() const override { return "context"; }

 protected:
  void begin() override;
  const PretrainedModel* pretrained() const override { return language_.pretrained ? &*language_.pretrained : nullptr; }

 private:
  LanguageSession& session() { return static_cast<LanguageSession&>(*session_); }

  LanguageModel language_;
  std::vector<TargetedTokens> train_, valid_;
  int64_t count_ = 1;  // conversations to train on, which are rows at most
  uint64_t assumed_bytes_ = 0;
  std::optional<PackedRows> rows_, valid_rows_;
};

// Loss and perplexity over the assistant's tokens.
Evaluation evaluate_rows(LanguageSession& session, PackedRows& rows, SharedWork& ranks);
// `linnet eval` of a run of this task: of a file, or with `path` empty of what the run chose by or of its test text.
Evaluation evaluate_chats(const OpenedLanguageModel& opened, const Config& config, const std::string& path,
                          const std::string& split);

}  // namespace linnet
