#include "base/files.h"
#include "data/text/pipeline/json_reader-inl.h"
#include "data/text/pretrained_files.h"

namespace linnet {
namespace {

using nlohmann::json;

struct Role {
  const char* key;
  TokenId TokenRoles::*id;
  std::vector<const char*> spellings;  // where no file says
};

const std::vector<Role>& all_roles() {
  static const std::vector<Role> roles = {
      {"bos_token", &TokenRoles::begin, {"<s>", "<|begin_of_text|>", "<|endoftext|>"}},
      {"eos_token", &TokenRoles::end, {"</s>", "<|end_of_text|>", "<|endoftext|>"}},
      {"pad_token", &TokenRoles::pad, {"<pad>", "[PAD]"}},
      {"unk_token", &TokenRoles::unknown, {"<unk>", "[UNK]"}},
      {"cls_token", &TokenRoles::classify, {"[CLS]"}},
      {"sep_token", &TokenRoles::separate, {"[SEP]"}},
      {"mask_token", &TokenRoles::mask, {"[MASK]", "<mask>"}},
  };
  return roles;
}

// A string, or an object with "content"; "" when there is none.
std::string read_token(const JsonObject& config, const char* key) {
  if (!config.has(key)) return "";
  if (config.at(key).is_object()) return config.object(key).text("content");
  return config.text(key);
}

// Several templates are a list of names and templates; the one called "default" counts, or the only one.
std::string read_chat_template(const JsonObject& config) {
  if (!config.has("chat_template")) return "";
  const json& value = config.at("chat_template");
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) config.fail("'chat_template' is neither a text nor a list");
  std::string chosen;
  for (size_t i = 0; i < value.size(); ++i) {
    const JsonObject named(value[i], config.within("chat_template") + "[" + std::to_string(i) + "]");
    if (value.size() == 1 || named.text("name") == "default") chosen = named.text("template");
  }
  return chosen;
}

}  // namespace

std::string read_tokenizer_config(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json", chat = folder + "/chat_template.jinja";
  std::string text = file_exists(path) ? read_file(path) : std::string();
  if (!file_exists(chat)) return text;
  json config = text.empty() ? json::object() : parse_json(text, path);
  if (config.is_object()) config["chat_template"] = read_file(chat);
  return json_text(config);
}

void set_roles_from_files(PretrainedTokenizer& tokenizer, std::string_view config_text, const std::string& config_path,
                          std::string_view map_text, const std::string& map_path) {
  const json config_json = config_text.empty() ? json::object() : parse_json(config_text, config_path);
  const json map_json = map_text.empty() ? json::object() : parse_json(map_text, map_path);
  const JsonObject config(config_json, "'" + config_path + "':"), map(map_json, "'" + map_path + "':");
  bool any = false;
  for (const Role& role : all_roles()) any = any || config_json.contains(role.key) || map_json.contains(role.key);
  TokenRoles roles = tokenizer.roles();
  for (const Role& role : all_roles()) {
    std::string piece = read_token(config, role.key);
    if (piece.empty()) piece = read_token(map, role.key);
    if (!piece.empty()) {
      roles.*role.id = tokenizer.id_of(piece);
    } else if (!any && roles.*role.id == kNoToken) {
      for (const char* spelling : role.spellings)
        if (roles.*role.id == kNoToken) roles.*role.id = tokenizer.id_of(spelling);
    }
  }
  tokenizer.set_roles(roles);
  tokenizer.set_chat_template(read_chat_template(config));
  // Where a model has no limit, files have 10^30.
  if (const auto found = config_json.find("model_max_length"); found != config_json.end() && found->is_number_integer())
    if (const double length = found->get<double>(); length > 0 && length < 1e9)
      tokenizer.set_max_length(static_cast<int64_t>(length));
}

std::string format_tokenizer_config(const PretrainedTokenizer& tokenizer, std::string_view read_before) {
  json config = json::object();
  if (!read_before.empty()) config = parse_json(read_before, "tokenizer_config.json");
  for (const Role& role : all_roles()) {
    const TokenId id = tokenizer.roles().*role.id;
    if (id == kNoToken)
      config.erase(role.key);
    else
      config[role.key] = tokenizer.piece(id);
  }
  if (tokenizer.max_length() > 0) config["model_max_length"] = tokenizer.max_length();
  if (!config.contains("tokenizer_class")) config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return config.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace linnet
