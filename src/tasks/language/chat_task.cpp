#include "tasks/language/chat_task.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "data/examples/held_out.h"
#include "data/examples/text/record_reader.h"
#include "data/metrics/word_count.h"
#include "data/text/chat/chat_template.h"
#include "tasks/inference.h"

namespace linnet {

namespace {

int64_t longest_chat(const Config& config, const CausalModel& model) {
  const int64_t most = model.max_length();
  return config.data.context > 0 ? std::min(config.data.context, most) : most;
}

const PretrainedTokenizer& tokenizer_of(const LanguageModel& language, const std::string& folder) {
  if (const PretrainedTokenizer* tokenizer = language.coder->pretrained()) return *tokenizer;
  fail_user("'" + folder + "' has no tokenizer with a chat template");
}

std::vector<TargetedTokens> read_chats(const std::string& path, const Config& config, const LanguageModel& language,
                                       const std::string& folder) {
  const int64_t longest = longest_chat(config, *language.model);
  const bool may_be_longer = longest < language.model->max_length();
  return read_chats(path, tokenizer_of(language, folder), folder, longest,
                    may_be_longer ? "--set context=N takes longer ones" : "the model takes no more");
}

// Conversations to train on and to choose by: those of valid_text, or a share of the former.
std::pair<std::vector<TargetedTokens>, std::vector<TargetedTokens>> load_chats(const Config& config,
                                                                               const LanguageModel& language,
                                                                               const std::string& folder) {
  const DataConfig& data = config.data;
  if (data.text.empty()) fail_user("task = \"chat\" reads the file text, which is not given (--data FILE.jsonl)");
  const auto read = [&](const std::string& file) {
    return read_chats(data_path(data, file), config, language, folder);
  };
  std::vector<TargetedTokens> all = read(data.text), train, valid;
  if (!data.valid_text.empty()) return {std::move(all), read(data.valid_text)};
  const std::vector<bool> chosen =
      choose_held_out(std::vector<int32_t>(all.size(), 0), data.valid_share, static_cast<uint64_t>(config.train.seed));
  for (size_t i = 0; i < all.size(); ++i) (chosen[i] ? valid : train).push_back(std::move(all[i]));
  if (valid.empty()) fail_user("too few conversations to set some aside; --set data.valid_text=FILE names others");
  return {std::move(train), std::move(valid)};
}

}  // namespace

DataAtHand ChatTask::data_at_hand(bool exact) const {
  DataAtHand data = text_at_hand(config_, exact);
  if (data.read && config_.model.from.empty()) data.read = false, data.why_not = "No model folder was given";
  return data;
}

void ChatTask::open(const std::string& from) {
  const std::string& folder = from.empty() ? config_.model.from : from;
  if (folder.empty())
    fail_user("task = \"chat\" starts from a model folder, which is not given (--set model.from=FOLDER)");
  language_ = make_language_model(config_, from.empty() ? open_text_coder(folder) : load_text_coder(from), from);
  std::tie(train_, valid_) = load_chats(config_, language_, folder);
  count_ = std::ssize(train_);
  log_info(std::to_string(count_) + " conversations to train on, " + std::to_string(valid_.size()) + " to choose by");
}

std::string ChatTask::assume(const DataAtHand& data) {
  constexpr int64_t kChats = 10'000;
  language_ = make_language_model(config_, make_number_coder(config_.data.vocab_size), "");
  count_ = kChats;
  assumed_bytes_ = 2 * data.bytes;
  return data.why_not + "; assuming " + std::to_string(count_) + " conversations.";
}

std::unique_ptr<Session> ChatTask::make_session(const Config& config, bool verify) {
  return std::make_unique<LanguageSession>(config, language_.model,
                                           LanguageOptions{.packed = true, .verify_plans = verify});
}

void ChatTask::begin() {
  rows_.emplace(train_, session().chunks, static_cast<uint64_t>(config_.train.seed));
  valid_rows_.emplace(valid_, session().chunks, 0);
}

std::string ChatTask::batches_text(const Session& session) const {
  const ChunkOptions& chunks = static_cast<const LanguageSession&>(session).chunks;
  return std::to_string(chunks.rows) + " rows of " + std::to_string(chunks.length) +
         " tokens, with several conversations each";
}

Evaluation ChatTask::evaluate(SharedWork& ranks) { return evaluate_rows(session(), *valid_rows_, ranks); }

Evaluation evaluate_rows(LanguageSession& session, PackedRows& rows, SharedWork& ranks) {
  const std::vector<double> found =
      ranks.numbers(rows.batches_per_epoch(), 2, [&](int64_t index, std::span<double> result) {
        const LossTotal total = session.trainer->evaluate(rows.ordered_batch(index));
        result[0] = total.sum, result[1] = static_cast<double>(total.tokens);
      });
  double nats = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < found.size(); i += 2) nats += found[i], tokens += static_cast<int64_t>(found[i + 1]);
  return {nats / static_cast<double>(tokens), tokens, {{"perplexity", perplexity(nats, tokens)}}, {}};
}

Evaluation evaluate_chats(const OpenedLanguageModel& opened, const Config& config, const std::string& path,
                          const std::string& split) {
  const auto read = [&](const std::string& file) { return read_chats(file, config, opened, opened.folder); };
  if (path.empty() && split == "test" && config.data.test_text.empty())
    fail_user("the run's configuration names no test_text; --data FILE names one");
  const std::vector<TargetedTokens> chats = !path.empty()     ? read(path)
                                            : split == "test" ? read(data_path(config.data, config.data.test_text))
                                                              : load_chats(config, opened, opened.folder).second;
  LanguageSession session(config, opened.model, {.training = false, .packed = true});
  take_model_weights(session, opened.folder, "", [&](const ParameterLayout& layout, const ParameterTarget& parameters) {
    opened.load_weights(layout, parameters);
  });
  PackedRows rows(chats, session.chunks, 0);
  SharedWork alone = SharedWork::alone();
  return evaluate_rows(session, rows, alone);
}

namespace {

Json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

void append(Json& messages, const Json& part, const char* role, const std::string& where) {
  if (part.is_string()) {
    messages.push_back(message(role, part.text()));
  } else if (part.is_array()) {
    for (const Json& each : part) messages.push_back(each);
  } else {
    fail_user(where + ": \"prompt\" and \"completion\" are texts or lists of messages");
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
        fail_user(where + ": \"from\" is \"" + from + "\", and neither human, gpt nor system");
      messages.push_back(message(human ? "user" : system ? "system" : "assistant", turn.value("value", "")));
    }
  } else if (record.contains("prompt") && record.contains("completion")) {
    append(messages, record["prompt"], "user", where);
    append(messages, record["completion"], "assistant", where);
  } else {
    fail_user(where + ": there is no \"messages\", nor \"prompt\" with \"completion\", nor \"conversations\"");
  }
  if (!messages.is_array() || messages.empty()) fail_user(where + ": the list of messages is empty");
  for (const Json& each : messages)
    if (!each.is_object() || !each.contains("role") || !each["role"].is_string())
      fail_user(where + ": a message has no \"role\"");
  return messages;
}

// A conversation as text, and which bytes of it the assistant wrote.
struct Rendered {
  std::string text;
  std::vector<TextRange> learned;
};

Rendered render(const ChatTemplate& chat, const Json& messages, const std::string& where) {
  Rendered rendered;
  Json before = Json::array();
  const auto render = [&](bool prompt) {
    try {
      return chat.render(before.dump(), prompt);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUser) throw;
      fail_user(where + ": " + error.what());
    }
  };
  for (const Json& each : messages) {
    const bool assistant = each["role"].text() == "assistant";
    std::string prompt;
    if (assistant) prompt = render(true);
    before.push_back(each);
    if (!assistant) continue;
    std::string text = render(false);
    // What the model continues when it writes has to be what it learned from.
    if (!text.starts_with(prompt) || !text.starts_with(rendered.text))
      fail_user(where +
                ": the chat template writes earlier turns differently once later ones follow; the answers cannot "
                "be told from what they answer");
    rendered.learned.push_back({prompt.size(), text.size()});
    rendered.text = std::move(text);
  }
  return rendered;
}

TargetedTokens tokens_of(const Rendered& rendered, const PretrainedTokenizer& tokenizer) {
  const Encoding encoding = tokenizer.encode(rendered.text, EncodeOptions{.add_special = false});
  TargetedTokens found{encoding.ids, std::vector<int32_t>(encoding.ids.size(), -1)};
  for (size_t i = 1; i < encoding.ids.size(); ++i) {
    const TextRange& covered = encoding.offsets[i];
    const auto has_it = [&](const TextRange& range) {
      return covered.end > covered.begin && covered.begin >= range.begin && covered.end <= range.end;
    };
    if (std::ranges::any_of(rendered.learned, has_it)) found.targets[i - 1] = encoding.ids[i];
  }
  return found;
}

}  // namespace

std::vector<TargetedTokens> read_chats(const std::string& path, const PretrainedTokenizer& tokenizer,
                                       const std::string& folder, int64_t longest, const std::string& why_cut) {
  if (tokenizer.kind() == "sentencepiece")
    fail_user("'" + folder + "' has no tokenizer.json, which task = \"chat\" needs to know the tokens of an answer");
  const ChatTemplate chat(tokenizer, folder);
  RecordReader reader(path, {});
  std::vector<TargetedTokens> chats;
  int64_t all = 0, cut = 0, left_out = 0;
  for (Json record; reader.next(record); ++all) {
    const Rendered rendered = render(chat, messages_of(record, reader.where()), reader.where());
    TargetedTokens found = tokens_of(rendered, tokenizer);
    if (std::ssize(found.tokens) > longest) {
      ++cut;
      found.tokens.resize(static_cast<size_t>(longest)), found.targets.resize(static_cast<size_t>(longest));
    }
    if (std::ranges::all_of(found.targets, [](int32_t target) { return target < 0; }))
      ++left_out;
    else
      chats.push_back(std::move(found));
  }
  const std::string of_all = " of " + std::to_string(all) + " conversations ";
  if (chats.empty()) fail_user("'" + path + "': no conversation has an answer of the assistant to learn");
  if (cut > 0)
    log_warning(std::to_string(cut) + of_all + "are longer than " + std::to_string(longest) +
                " tokens and are cut there (" + why_cut + ")");
  if (left_out > 0) log_warning(std::to_string(left_out) + of_all + "have nothing to learn and are left out");
  return chats;
}

}  // namespace linnet
