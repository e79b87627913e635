#include <optional>
#include "base/files.h"
#include "base/json_reader.h"
#include "base/numbers.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/pretrained_files.h"

namespace linnet {
namespace {

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
  const Json& value = config.at("chat_template");
  if (value.is_string()) return value.text();
  if (!value.is_array()) config.fail("chat_template", "is neither a string nor a list");
  std::string chosen;
  for (const JsonObject& named : config.objects("chat_template"))
    if (value.size() == 1 || named.text("name") == "default") chosen = named.text("template");
  return chosen;
}

}  // namespace

std::string read_tokenizer_config(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json", chat = folder + "/chat_template.jinja";
  std::string text = file_exists(path) ? read_file(path) : std::string();
  if (!file_exists(chat)) return text;
  Json config = parse_tokenizer_config(text, path);
  if (config.is_object()) config["chat_template"] = read_file(chat);
  return config.dump_sorted();
}

Json parse_tokenizer_config(std::string_view text, const std::string& path) {
  return text.empty() ? Json::object() : Json::parse(text, "'" + path + "'", JsonLimits::settings());
}

std::string tokenizer_kind(const JsonObject& config, const std::string& folder) {
  const std::string path = folder + "/config.json", type = config.text("tokenizer_class", "");
  if (!type.empty() || !file_exists(path)) return type;
  const Json json = Json::parse(read_file(path), "'" + path + "'", JsonLimits::settings());
  const JsonObject model_config(json, "'" + path + "':");
  if (model_config.has("tokenizer_class")) return model_config.text("tokenizer_class");
  const std::string model = model_config.text("model_type", "");
  constexpr std::pair<const char*, const char*> kKinds[] = {{"xlm-roberta", "XLMRoberta"},
                                                            {"camembert", "Camembert"},
                                                            {"mbart", "MBart"},
                                                            {"m2m_100", "Nllb"},
                                                            {"pegasus", "Pegasus"},
                                                            {"deberta-v2", "DebertaV2"},
                                                            {"roberta", "Roberta"},
                                                            {"bart", "Bart"},
                                                            {"mpnet", "MPNet"},
                                                            {"gpt_neox", "GPTNeoX"},
                                                            {"qwen2", "Qwen2"},
                                                            {"qwen3", "Qwen2"},
                                                            {"qwen3_moe", "Qwen2"},
                                                            {"t5", "T5"},
                                                            {"mt5", "T5"},
                                                            {"albert", "Albert"},
                                                            {"llama", "Llama"},
                                                            {"gemma", "Gemma"},
                                                            {"gemma2", "Gemma"},
                                                            {"gemma3_text", "Gemma"},
                                                            {"gemma3", "Gemma"}};
  for (const auto& [name, kind] : kKinds)
    if (model == name) return kind;
  return "";
}

void add_tokens_of_config(const JsonObject& config, Pipeline& pipeline) {
  constexpr const char* kTokens = "added_tokens_decoder";
  if (!config.has(kTokens)) return;
  const JsonObject tokens = config.object(kTokens);
  for (const auto& [number, unused] : config.at(kTokens).items()) {
    const std::optional<int64_t> id = parse_number<int64_t>(number);
    if (!id) tokens.fail("has the id '" + number + "'");
    AddedToken token = read_added_token(tokens.object(number.c_str()), *id);
    std::erase_if(pipeline.added,
                  [&](const AddedToken& known) { return known.id == token.id || known.text == token.text; });
    pipeline.added.push_back(std::move(token));
  }
}

void set_roles_from_files(PretrainedTokenizer& tokenizer, std::string_view config_text, const std::string& config_path,
                          std::string_view map_text, const std::string& map_path) {
  const Json config_json = parse_tokenizer_config(config_text, config_path);
  const Json map_json = parse_tokenizer_config(map_text, map_path);
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
  if (const Json* found = config_json.find("model_max_length"); found && found->is_number())
    if (const double length = found->get<double>(); length > 0 && length < 1e9)
      tokenizer.set_max_length(static_cast<int64_t>(length));
}

std::string format_tokenizer_config(const PretrainedTokenizer& tokenizer, std::string_view read_before) {
  Json config = parse_tokenizer_config(read_before, "tokenizer_config.json");
  for (const Role& role : all_roles()) {
    const TokenId id = tokenizer.roles().*role.id;
    if (id == kNoToken) config.erase(role.key);
    else config[role.key] = tokenizer.piece(id);
  }
  if (tokenizer.max_length() > 0) config["model_max_length"] = tokenizer.max_length();
  if (!config.contains("tokenizer_class")) config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return config.dump_sorted(2) + "\n";
}

}  // namespace linnet
