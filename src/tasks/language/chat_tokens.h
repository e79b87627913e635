// Conversations as tokens; a language model learns the assistant's.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>
#include "base/json.h"
#include "config/config.h"
#include "data/examples/held_out.h"
#include "data/examples/text/token_chunks.h"
#include "data/text/chat/chat_template.h"
#include "tasks/language/language_model.h"

namespace linnet {
// User error beginning with `where` unless it is a list of messages, each with a role.
void check_messages(const Json& messages, const std::string& where);

// A text and which of its bytes are learned, in order.
struct LearnedText {
  std::string text;
  std::vector<TextRange> learned;
};

// Renders a conversation; the assistant's turns, including their ends, are learned. A template may render earlier turns
// differently once later ones follow (Qwen3 drops thoughts): then there are several texts, each as the model sees it
// when it writes the answers learned from it. User error beginning with `where` for roles that the template refuses.
std::vector<LearnedText> render_chat(const ChatTemplate& chat, const Json& messages, const std::string& where);
// `special`: with the tokens that the tokenizer puts around a text.
TargetedTokens learned_tokens(const LearnedText& text, const PretrainedTokenizer& tokenizer, bool special = false);
bool learns_anything(const TargetedTokens& tokens);
// Returns whether there was anything to cut.
bool cut_tokens(TargetedTokens& tokens, int64_t longest);

// The most tokens of a conversation.
int64_t longest_chat(const Config& config, const CausalModel& model);
// Returns a tokenizer that knows its tokens' bytes; otherwise a user error names `folder`.
const PretrainedTokenizer& tokenizer_of(const Config& config, const LanguageModel& language, const std::string& folder);

// Training and validation records (valid_text, or a share) by read(path). `what`: their name, "conversations".
template <class Record, class Read> std::pair<std::vector<Record>, std::vector<Record>> load_records(
    const Config& config, const char* what, const Read& read) {
  const DataConfig& data = config.data;
  if (data.text.empty())
    fail_user("task = \"", data.task, "\" reads the file text, which is not given (--data FILE.jsonl)");
  std::vector<Record> all = read(data_path(data, data.text)), train, valid;
  if (!data.valid_text.empty()) return {std::move(all), read(data_path(data, data.valid_text))};
  const auto goes_on = [](const Record& record) {
    if constexpr (requires { record.goes_on; }) return record.goes_on;
    return false;
  };
  const auto whole = static_cast<size_t>(std::ranges::count_if(all, std::not_fn(goes_on)));
  const std::vector<bool> chosen =
      choose_held_out(std::vector<int32_t>(whole, 0), data.valid_share, static_cast<uint64_t>(config.train.seed));
  size_t next = 0;
  for (Record& record : all) {
    if (!goes_on(record)) ++next;
    (chosen[next - 1] ? valid : train).push_back(std::move(record));
  }
  if (valid.empty()) fail_user("too few ", what, " to set some aside; --set data.valid_text=FILE names others");
  return {std::move(train), std::move(valid)};
}

void tell_cut_records(
    const char* what, int64_t all, int64_t cut, int64_t left_out, int64_t longest, const CausalModel& model);
}  // namespace linnet
