// Fine-tunes a language model on the assistant's turns of conversations.
#include "base/fail.h"
#include "base/text.h"
#include "base/thread_pool.h"
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
using PromptFields = std::array<std::string_view, 2>;
constexpr PromptFields kUsualFields{"prompt", "completion"};

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

// A turn of "conversations": of ShareGPT, or a message.
Json message_of(const Json& turn, const std::string& where) {
  if (turn.contains("role")) return turn;
  const Json from = turn.contains("from") ? turn["from"] : Json(),
             *text = turn.find(turn.contains("value") ? "value" : "content");
  const bool human = from == "human" || from == "user", system = from == "system";
  if (!human && !system && from != "gpt" && from != "assistant")
    fail_user(where, ": \"from\" is ", from.dump(), ", and neither human, gpt nor system");
  if (!text || !text->is_string()) fail_user(where, ": a turn from ", from.dump(), " has no text as its \"value\"");
  Json read = message(human ? "user" : system ? "system" : "assistant", text->text());
  if (const Json* weight = turn.find("weight")) read["weight"] = *weight;
  return read;
}

Json messages_of(const Json& record, const PromptFields& fields, const std::string& where) {
  Json messages = Json::array();
  const bool usual = fields == kUsualFields;
  if (const Json* found = record.find("messages"); usual && found) {
    messages = *found;
  } else if (const Json* turns = record.find("conversations"); usual && turns && turns->is_array()) {
    for (const Json& turn : *turns) messages.push_back(message_of(turn, where));
  } else if (record.contains(fields[0]) && record.contains(fields[1])) {
    append(messages, record[fields[0]], "user", where);
    for (Json& turn : messages)  // the completion alone is learned
      if (const Json* role = turn.find("role"); role && *role == "assistant") turn["weight"] = 0;
    append(messages, record[fields[1]], "assistant", where);
  } else {
    fail_user(where, ": there is no ", usual ? "\"messages\", nor \"conversations\", nor \"" : "\"", fields[0],
        "\" with \"", fields[1], "\"; ",
        record.contains("1") ? "names of JSON lines end in .jsonl, and tables begin with names of columns"
                             : "there are " + joined(record.items(), ", ", &Json::Member::key),
        "; --text-column and --label-column name the prompt and its completion");
  }
  return training_messages(record, messages, where);
}

// Reads JSON lines, perhaps with "tools": {"messages": [{"role", "content"}, ...]}, {"prompt", "completion"} (texts or
// lists of messages), or {"conversations": [{"from", "value"}, ...]} (ShareGPT). The chat template renders each
// (render_chat()). Logs how many were cut at longest_chat() or had nothing to learn. `folder` is for messages.
std::vector<TargetedTokens> read_chats(
    const std::string& path, const Config& config, const LanguageModel& language, const std::string& folder) {
  const PretrainedTokenizer& tokenizer = tokenizer_of(config, language, folder);
  const int64_t longest = longest_chat(config, *language.model);
  const ChatTemplate chat(tokenizer, folder);
  PromptFields fields = kUsualFields;
  if (!config.data.text_column.empty()) fields[0] = config.data.text_column;
  if (!config.data.label_column.empty()) fields[1] = config.data.label_column;
  const TimedPhase phase("reading '" + path + "'");
  RecordReader reader(path, fields);
  std::vector<TargetedTokens> chats;
  int64_t all = 0, cut = 0, learned = 0, several = 0, unclear = 0;
  bool told_of_role = false;
  for (Json record; reader.next(record); ++all) {
    const std::string where = reader.where();
    const Json messages = messages_of(record, fields, where);
    warn_of_unusual_role(messages, where, told_of_role);
    const std::vector<LearnedText> texts = render_chat(chat, messages, training_tools(record, where), where);
    several += texts.size() > 1;
    unclear += std::ranges::count_if(messages, is_learned);
    bool is_cut = false, learns = false;
    for (const LearnedText& text : texts) {
      unclear -= std::ssize(text.learned);
      TargetedTokens found = learned_tokens(text, tokenizer);
      check_tokens(found, *language.model, where);
      is_cut |= cut_tokens(found, longest);
      if (!learns_anything(found)) continue;
      found.goes_on = learns, learns = true;
      chats.push_back(std::move(found));
    }
    cut += is_cut, learned += learns;
  }
  if (unclear > 0)
    log_warning("answers that are not learned: ", unclear,
        ". Nothing stands before them, or the chat template writes it differently once they follow");
  if (chats.empty())
    fail_user("'", path, "': no conversation has an answer of the assistant to learn",
        cut > 0 ? " within " + std::to_string(longest) + " tokens (" + longer_ones(longest, *language.model) + ")"
                : "");
  if (several > 0)
    log_info(several, " of ", all,
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
    return text_of_parts(chunks.rows, " rows of ", chunks.length, " tokens, with several conversations each");
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
