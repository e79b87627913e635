#include "data/text/chat/chat_template.h"
#include "base/fail.h"

namespace linnet {
namespace {
jinja::Dict special_tokens(const PretrainedTokenizer& tokenizer) {
  const TokenRoles& roles = tokenizer.roles();
  jinja::Dict tokens;
  for (const auto& [name, id] : {std::pair{"bos_token", roles.begin}, {"eos_token", roles.end},
           {"pad_token", roles.pad}, {"unk_token", roles.unknown}, {"cls_token", roles.classify},
           {"sep_token", roles.separate}, {"mask_token", roles.mask}})
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

// Parses the arguments of earlier calls, which clients send as JSON text and templates write as JSON.
void read_calls(Json& message) {
  Json* calls = message.find("tool_calls");
  if (!calls || !calls->is_array()) return;
  for (Json& call : *calls)
    if (Json* function = call.find("function"))
      if (Json* arguments = function->find("arguments"); arguments && arguments->is_string())
        if (Json read = Json::parse_or_null(arguments->text(), JsonLimits::request()); read.is_object())
          *arguments = std::move(read);
}
}  // namespace

jinja::Value template_value(const std::string& json) {
  return value_from_json(Json::parse(json, JsonLimits::request()));
}

ChatTemplate::ChatTemplate(const PretrainedTokenizer& tokenizer, const std::string& folder)
    : tokens_(special_tokens(tokenizer)),
      template_(template_of(tokenizer, folder), "the chat template of '" + folder + "'"),
      knows_developers_(tokenizer.chat_template().find("developer") != std::string::npos),
      knows_tools_(tokenizer.chat_template().find("tools") != std::string::npos) {}

std::string ChatTemplate::render(const std::string& messages, bool begin_answer, const std::string& tools) const {
  jinja::Dict variables = tokens_;
  Json read = Json::parse(messages, JsonLimits::request());
  for (Json& message : read)
    if (Json* role = message.find("role"); role && *role == "developer" && !knows_developers_) *role = "system";
  variables.set("messages", value_from_json(read));
  // Clients send null for what a message does not have; templates ask whether the key is there.
  for (const jinja::Value& message : *variables.find("messages")->list())
    if (jinja::Dict* keys = message.dict())
      std::erase_if(keys->items, [](const auto& item) { return item.second.is_none(); });
  variables.set("tools", tools.empty() ? jinja::Value(jinja::None{}) : template_value(tools));
  variables.set("documents", jinja::None{});
  variables.set("add_generation_prompt", begin_answer);
  return template_.render(variables);
}

Json template_messages(const Json& messages, const std::function<void(const std::string&)>& fail) {
  if (!messages.is_array()) fail("is not a list of messages");
  if (messages.empty()) fail("is an empty list");
  Json read = messages;
  for (Json& message : read) {
    const Json *role = message.find("role"), *content = message.find("content"), *calls = message.find("tool_calls");
    if (!role || !role->is_string()) fail("has a message that is not an object with a \"role\" and a \"content\"");
    const bool is_empty = !content || content->is_null();
    if (is_empty && (!calls || calls->empty()))
      fail("has a message of the role " + shown(*role) + " without a \"content\"");
    std::string text = content && content->is_string() ? content->text() : "";
    if (!is_empty && !content->is_string() && !content->is_array()) fail("has a \"content\" that is no text");
    if (content)
      for (const Json& part : *content) {
        const Json *type = part.find("type"), *one = part.find("text");
        if (!type || *type != "text" || !one || !one->is_string())
          fail("has a \"content\" that is no text; images and sound are not supported");
        text += one->text();
      }
    message["content"] = text;
    read_calls(message);
  }
  return read;
}
}  // namespace linnet
