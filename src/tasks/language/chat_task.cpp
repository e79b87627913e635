// Fine-tunes a language model on the assistant's turns of conversations.
#include "base/fail.h"
#include "base/log.h"
#include "data/examples/text/record_reader.h"
#include "data/metrics/text_scores.h"
#include "tasks/inference.h"
#include "tasks/language/language_model.h"
#include "tasks/language/language_session.h"
#include "tasks/language/tuned_language_task.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {
constexpr const char* kConversations = "conversations";

Json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

void append(Json& messages, const Json& part, const char* role, const std::string& where) {
  if (part.is_string()) {
    messages.push_back(message(role, part.text()));
  } else if (part.is_array()) {
    for (const Json& each : part) messages.push_back(each);
  } else {
    fail_user(where, ": \"prompt\" and \"completion\" are texts or lists of messages");
  }
}

Json messages_of(const Json& record, const std::string& where) {
  Json messages = Json::array();
  if (const Json* found = record.find("messages")) {
    messages = *found;
  } else if (const Json* turns = record.find("conversations"); turns && turns->is_array()) {
    for (const Json& turn : *turns) {
      const std::string from = turn.value("from", "");
      const bool human = from == "human" || from == "user", system = from == "system";
      if (!human && !system && from != "gpt" && from != "assistant")
        fail_user(where, ": \"from\" is \"", from, "\", and neither human, gpt nor system");
      messages.push_back(message(human ? "user" : system ? "system" : "assistant", turn.value("value", "")));
    }
  } else if (record.contains("prompt") && record.contains("completion")) {
    append(messages, record["prompt"], "user", where);
    for (Json& turn : messages)  // the completion alone is learned
      if (const Json* role = turn.find("role"); role && *role == "assistant") turn["weight"] = 0;
    append(messages, record["completion"], "assistant", where);
  } else {
    fail_user(where, ": there is no \"messages\", nor \"prompt\" with \"completion\", nor \"conversations\"");
  }
  return training_messages(messages, where);
}

// Reads JSON lines, perhaps with "tools": {"messages": [{"role", "content"}, ...]}, {"prompt", "completion"} (texts or
// lists of messages), or {"conversations": [{"from", "value"}, ...]} (ShareGPT). The chat template renders each
// (render_chat()). Logs how many were cut at longest_chat() or had nothing to learn. `folder` is for messages.
std::vector<TargetedTokens> read_chats(
    const std::string& path, const Config& config, const LanguageModel& language, const std::string& folder) {
  const PretrainedTokenizer& tokenizer = tokenizer_of(config, language, folder);
  const int64_t longest = longest_chat(config, *language.model);
  const ChatTemplate chat(tokenizer, folder);
  RecordReader reader(path, {});
  std::vector<TargetedTokens> chats;
  int64_t all = 0, cut = 0, learned = 0, several = 0;
  for (Json record; reader.next(record); ++all) {
    const std::string where = reader.where();
    const std::vector<LearnedText> texts =
        render_chat(chat, messages_of(record, where), training_tools(record, where), where);
    several += texts.size() > 1;
    bool is_cut = false, learns = false;
    for (const LearnedText& text : texts) {
      TargetedTokens found = learned_tokens(text, tokenizer);
      check_tokens(found, *language.model, where);
      is_cut |= cut_tokens(found, longest);
      if (!learns_anything(found)) continue;
      found.goes_on = learns, learns = true;
      chats.push_back(std::move(found));
    }
    cut += is_cut, learned += learns;
  }
  if (chats.empty())
    fail_user("'", path, "': no conversation has an answer of the assistant to learn",
        cut > 0 ? " within " + std::to_string(longest) + " tokens (" + longer_ones(longest, *language.model) + ")"
                : "");
  if (several > 0)
    log_info(std::to_string(several) + " of " + std::to_string(all) +
             " conversations are learned answer by answer: the chat template writes earlier turns differently");
  tell_cut_records(kConversations, all, cut, all - learned, longest, *language.model);
  return chats;
}

TaskEvaluation evaluate_rows(LanguageSession& session, PackedRows& rows, const SharedWork& ranks) {
  const auto [nats, tokens] = total_loss(rows.batches_per_epoch(), ranks,
      [&](int64_t index) { return session.trainer->evaluate(rows.ordered_batch(index)); });
  return {nats / static_cast<double>(tokens), tokens, {{"perplexity", perplexity(nats, tokens)}}, {}};
}

class ChatTask : public TunedLanguageTask<TargetedTokens> {
 public:
  explicit ChatTask(const Config& config) : TunedLanguageTask(config, kConversations) {}

  std::unique_ptr<Session> make_session(const Config& config, bool verify) override {
    return std::make_unique<LanguageSession>(config, language_.model,
        LanguageOptions{
            .packed = true, .verify_plans = verify, .teacher = teacher({}, language_.encoding(!train_.empty()))});
  }

  BatchSource& batches() override { return *rows_; }
  TaskEvaluation evaluate(const SharedWork& ranks) override { return evaluate_rows(session(), *valid_rows_, ranks); }
  std::string batches_text(const Session& session) const override {
    const ChunkOptions& chunks = static_cast<const LanguageSession&>(session).chunks;
    return std::to_string(chunks.rows) + " rows of " + std::to_string(chunks.length) +
           " tokens, with several conversations each";
  }

 protected:
  std::pair<std::vector<TargetedTokens>, std::vector<TargetedTokens>> load(const std::string& folder) override {
    return load_records<TargetedTokens>(
        config_, kConversations, [&](const std::string& file) { return read_chats(file, config_, language_, folder); });
  }
  void begin() override {
    rows_.emplace(train_, session().chunks, static_cast<uint64_t>(config_.train.seed));
    valid_rows_.emplace(valid_, session().chunks, 0);
  }

 private:
  LanguageSession& session() { return static_cast<LanguageSession&>(*session_); }

  std::optional<PackedRows> rows_, valid_rows_;
};
}  // namespace

std::unique_ptr<SessionTask> make_chat_task(const Config& config) { return std::make_unique<ChatTask>(config); }

TaskEvaluation evaluate_chats(
    const OpenedLanguageModel& opened, const Config& config, const std::string& path, const std::string& split) {
  const auto chats = records_to_evaluate<TargetedTokens>(config, kConversations, path, split,
      [&](const std::string& file) { return read_chats(file, config, opened, opened.folder); });
  LanguageSession session(config, opened.model, {.training = false, .packed = true});
  take_model_weights(session, opened.folder, "", opened.weights());
  PackedRows rows(chats, session.chunks, 0);
  return evaluate_rows(session, rows, SharedWork::alone());
}
}  // namespace linnet
