#include "tasks/language/tuned_language_task.h"

namespace linnet {
Json training_messages(const Json& record, const Json& messages, const std::string& where) {
  const auto fail = [&](const std::string& why) { fail_user(where, ": the conversation ", why); };
  Json read = template_messages(messages, fail);
  for (const Json& each : read) {
    const Json* weight = each.find("weight");
    if (weight && !weight->is_null() && *weight != Json(0) && *weight != Json(1))
      fail("has a \"weight\" of " + weight->dump() + ", which is neither 0 nor 1");
  }
  const Json* system = record.find("system");
  const std::string& first = read[0]["role"].text();
  if (!system || system->is_null() || *system == "" || first == "system" || first == "developer") return read;
  Json all = Json::array();
  all.push_back({{"role", "system"}, {"content", *system}});
  for (Json& each : read) all.push_back(std::move(each));
  return template_messages(all, fail);
}

void warn_of_unusual_role(const Json& messages, const std::string& where, bool& told) {
  constexpr std::array<std::string_view, 8> kRoles{
      "system", "developer", "user", "assistant", "tool", "function", "ipython", "model"};
  for (const Json& each : messages)
    if (const std::string& role = each["role"].text(); !contains(kRoles, role) && !std::exchange(told, true))
      log_warning(where + ": the role \"" + role + "\" is unusual; many chat templates leave such messages out");
}

std::string training_tools(const Json& record, const std::string& where) {
  const Json* found = record.find("tools");
  if (!found || found->empty() || *found == "") return "";
  const Json tools = found->is_string() ? Json::parse_or_null(found->text(), JsonLimits::request()) : *found;
  if (!tools.is_array() || !std::ranges::all_of(tools, &Json::is_object))
    fail_user(where, ": \"tools\" is no list of functions");
  return tools.empty() ? "" : tools.dump();
}

bool is_learned(const Json& message) {
  const Json* weight = message.find("weight");
  return message["role"] == "assistant" && !(weight && *weight == Json(0));
}

std::vector<LearnedText> render_chat(
    const ChatTemplate& chat, const Json& messages, const std::string& tools, const std::string& where) {
  std::vector<LearnedText> texts(1);
  const auto render = [&](const Json& turns, bool prompt) {
    try {
      return chat.render(turns.dump(), prompt, tools);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUser) throw;
      fail_user(where, ": ", error.what());
    }
  };
  for (size_t i = 1; i < messages.size(); ++i) {
    if (!is_learned(messages[i])) continue;
    Json before = messages, whole = messages;
    before.resize(i), whole.resize(i + 1);
    const std::string prompt = render(before, true);
    std::string text = render(whole, false);
    auto begin = std::ranges::mismatch(prompt, text).in2;
    // The prompt may end in something that the text lacks, such as "<think>". The answer then begins where the text
    // differs from the prompt, or from the text with another answer: this answer may begin with "<", too. It can be
    // told apart only if it begins behind the earlier turns.
    if (!text.starts_with(prompt)) {
      const std::string earlier = render(before, false);
      before.push_back({{"role", "assistant"}, {"content", "."}});
      begin = std::min(begin, std::ranges::mismatch(render(before, false), text).in2);
      if (!text.starts_with(earlier) || begin - text.begin() <= std::ssize(earlier)) continue;
    }
    if (!text.starts_with(texts.back().text)) texts.emplace_back();
    texts.back().learned.push_back({static_cast<size_t>(begin - text.begin()), text.size()});
    texts.back().text = std::move(text);
  }
  return texts;
}

TargetedTokens learned_tokens(const LearnedText& rendered, const PretrainedTokenizer& tokenizer, bool special) {
  const Encoding encoding = tokenizer.encode(
      rendered.text, EncodeOptions{.add_special = special, .with_spaces = true, .all_special = !special});
  TargetedTokens found{encoding.ids, std::vector<int32_t>(encoding.ids.size(), -1)};
  for (size_t i = 1; i < encoding.ids.size(); ++i) {
    const TextRange& covered = encoding.offsets[i];  // may be empty: one of several bytes of a character
    // A word's token may begin with a space of the prompt.
    const size_t letter = rendered.text.find_first_not_of(' ', covered.begin);
    const size_t begin = letter < covered.end ? letter : covered.begin;
    const auto has_it = [&](const TextRange& range) {
      return begin >= range.begin && begin < range.end && covered.end <= range.end;
    };
    if (encoding.special[i] == 0 && std::ranges::any_of(rendered.learned, has_it))
      found.targets[i - 1] = encoding.ids[i];
  }
  return found;
}

bool learns_anything(const TargetedTokens& tokens) {
  return std::ranges::any_of(tokens.targets, [](int32_t target) { return target >= 0; });
}

bool cut_tokens(TargetedTokens& tokens, int64_t longest) {
  if (std::ssize(tokens.tokens) <= longest) return false;
  tokens.tokens.resize(longest), tokens.targets.resize(longest);
  return true;
}

int64_t longest_chat(const Config& config, const CausalModel& model) {
  return config.data.context > 0 ? std::min(config.data.context, model.max_length()) : model.usual_length();
}

const PretrainedTokenizer& tokenizer_of(
    const Config& config, const LanguageModel& language, const std::string& folder) {
  const PretrainedTokenizer* tokenizer = language.coder->pretrained();
  if (!tokenizer)
    fail_user("'", folder, "' has no tokenizer of a model folder (tokenizer.json, tokenizer.model), which task = \"",
        config.data.task, "\" needs to know the tokens of an answer");
  return *tokenizer;
}

void check_tokens(const TargetedTokens& tokens, const CausalModel& model, const std::string& where) {
  for (const int32_t token : tokens.tokens)
    if (token >= model.vocab_size())
      fail_user(where, ": the tokenizer writes token ", token, ", and the model has only ", model.vocab_size(),
          "; it needs rows for added tokens (in transformers resize_token_embeddings)");
}

std::string longer_ones(int64_t longest, const CausalModel& model) {
  return longest < model.max_length() ? "--set context=N takes longer ones" : "the model takes no more";
}

void tell_cut_records(
    const char* what, int64_t all, int64_t cut, int64_t left_out, int64_t longest, const CausalModel& model) {
  const std::string of_all = " of " + std::to_string(all) + " " + what + " ";
  if (cut > 0)
    log_warning(
        cut, of_all, "are longer than ", longest, " tokens and are cut there (", longer_ones(longest, model), ")");
  if (left_out > 0) log_warning(left_out, of_all, "have nothing to learn and are left out");
}
}  // namespace linnet
