#include "tasks/language/chat_data.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "data/examples/text/record_reader.h"
#include "data/text/chat/chat_template.h"

namespace linnet {
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
