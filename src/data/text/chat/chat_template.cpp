#include "data/text/chat/chat_template.h"
#include "base/fail.h"
#include "base/json.h"

namespace linnet {
namespace {
jinja::Dict special_tokens(const PretrainedTokenizer& tokenizer) {
  const TokenRoles& roles = tokenizer.roles();
  jinja::Dict tokens;
  for (const auto& [name, id] : {std::pair{"bos_token", roles.begin}, {"eos_token", roles.end},
           {"pad_token", roles.pad}, {"unk_token", roles.unknown}})
    if (id != kNoToken) tokens.set(name, tokenizer.piece(id));
  return tokens;
}

const std::string& template_of(const PretrainedTokenizer& tokenizer, const std::string& folder) {
  if (tokenizer.chat_template().empty())
    fail_user("'", folder,
        "' has no chat template: neither chat_template.jinja nor \"chat_template\" in its "
        "tokenizer_config.json");
  return tokenizer.chat_template();
}

jinja::Value value_from_json(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.text();
  if (json.is_array()) {
    jinja::List list;
    for (const auto& item : json) list.push_back(value_from_json(item));
    return list;
  }
  if (!json.is_object()) return jinja::None{};
  jinja::Dict dict;
  for (const auto& [key, item] : json.items()) dict.items.emplace_back(key, value_from_json(item));
  return dict;
}
}  // namespace

jinja::Value template_value(const std::string& json) {
  return value_from_json(Json::parse(json, JsonLimits::request()));
}

ChatTemplate::ChatTemplate(const PretrainedTokenizer& tokenizer, const std::string& folder)
    : tokens_(special_tokens(tokenizer)),
      template_(template_of(tokenizer, folder), "the chat template of '" + folder + "'") {}

std::string ChatTemplate::render(const std::string& messages, bool begin_answer, const std::string& tools) const {
  jinja::Dict variables = tokens_;
  variables.set("messages", template_value(messages));
  variables.set("tools", tools.empty() ? jinja::Value(jinja::None{}) : template_value(tools));
  variables.set("documents", jinja::None{});
  variables.set("add_generation_prompt", begin_answer);
  return template_.render(variables);
}
}  // namespace linnet
