// Converts older files of tokenizers to tokenizer.json's content, and handles tokenizer_config.json.
#include "data/text/pretrained_files.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/numbers.h"
#include "base/text.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
constexpr const char* kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A first line "#version: 0.2", then "a b" on each line.
Json read_merge_lines(std::string_view text, const std::string& path) {
  Json merges = Json::array();
  const std::vector<std::string_view> lines = split_lines(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    if (line.empty() || (i == 0 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos || invalid_utf8_at(line) != std::string_view::npos)
      fail_user("'", path, "' line ", i + 1, ": not two pieces and a space");
    merges.push_back(line);
  }
  return merges;
}

Json read_piece_lines(std::string_view text, const std::string& path) {
  Json vocabulary = Json::object();
  const std::vector<std::string_view> lines = split_lines(text);
  for (size_t id = 0; id < lines.size(); ++id) {
    if (invalid_utf8_at(lines[id]) != std::string_view::npos)
      fail_user("'", path, "' line ", id + 1, ": not valid UTF-8");
    vocabulary[lines[id]] = id;  // of two equal lines the last one counts, as in tokenizers
  }
  return vocabulary;
}

void add_special(std::initializer_list<const char*> pieces, Pipeline& pipeline) {
  for (const char* piece : pieces)
    if (const TokenId id = pipeline.model->vocabulary().find(piece); id >= 0)
      pipeline.added.push_back({.id = id, .text = piece, .special = true});
}

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

// A string, or an object with "content"; "" if there is none.
std::string read_token(const JsonObject& config, const char* key) {
  if (!config.has(key)) return "";
  if (config.at(key).is_object()) return config.object(key).text("content");
  return config.text(key);
}

// Of a list of named templates: the one called "default", or the only one.
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

Pipeline read_gpt2_files(std::string_view vocabulary, const std::string& vocabulary_path, std::string_view merges,
    const std::string& merges_path, const std::string& kind, const JsonObject& config) {
  const bool qwen = kind.starts_with("Qwen2"), roberta = kind.starts_with("Roberta") || kind.starts_with("Bart");
  const bool prefix_space = config.flag("add_prefix_space", false);
  const Json byte_level = {
      {"type", "ByteLevel"}, {"trim_offsets", false}, {"add_prefix_space", prefix_space}, {"use_regex", !qwen}};
  Json file{{"pre_tokenizer", byte_level}, {"post_processor", byte_level}, {"decoder", byte_level}};
  Json& model = file["model"] = {{"type", "BPE"}};
  model["vocab"] = Json::parse(vocabulary, "'" + vocabulary_path + "'", JsonLimits::tables());
  model["merges"] = read_merge_lines(merges, merges_path);
  if (qwen) {
    const Json words = {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", kQwen2Expression}}}};
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({words, byte_level})}};
  }
  if (qwen || kind.starts_with("GPTNeoX")) file["normalizer"] = {{"type", "NFC"}};
  const Json& pieces = file["model"]["vocab"];
  if (const Json* begin = pieces.find("<s>"), *end = pieces.find("</s>"); roberta && begin && end)
    file["post_processor"] = {{"type", "RobertaProcessing"}, {"sep", Json::array({"</s>", *end})},
        {"cls", Json::array({"<s>", *begin})}, {"trim_offsets", config.flag("trim_offsets", true)},
        {"add_prefix_space", prefix_space}};
  Pipeline pipeline = read_pipeline(file, "'" + vocabulary_path + "' and '" + merges_path + "':");
  add_special({"<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>"}, pipeline);  // GPT-2, RoBERTa and BART
  return pipeline;
}

Pipeline read_bert_vocabulary(
    std::string_view text, const std::string& path, const std::string& kind, const JsonObject& config) {
  const bool lowercase = config.flag("do_lower_case", true), mpnet = kind.starts_with("MPNet");
  Json file{{"normalizer", {{"type", "BertNormalizer"}, {"clean_text", true},
                               {"handle_chinese_chars", config.flag("tokenize_chinese_chars", true)},
                               {"strip_accents", config.flag("strip_accents", lowercase)}, {"lowercase", lowercase}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}}, {"model", {{"type", "WordPiece"}}}};
  const Json& pieces = file["model"]["vocab"] = read_piece_lines(text, path);
  const char* const begin = mpnet ? "<s>" : "[CLS]";
  const char* const end = mpnet ? "</s>" : "[SEP]";
  if (const Json* cls = pieces.find(begin), *sep = pieces.find(end); cls && sep) {
    Json post{{"type", mpnet ? "RobertaProcessing" : "BertProcessing"}, {"sep", Json::array({end, *sep})},
        {"cls", Json::array({begin, *cls})}};
    if (mpnet) post["trim_offsets"] = true, post["add_prefix_space"] = false;
    file["post_processor"] = std::move(post);
  }
  Pipeline pipeline = read_pipeline(file, "'" + path + "':");
  if (mpnet) add_special({"<s>", "<pad>", "</s>", "[UNK]", "<mask>"}, pipeline);
  else add_special({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}, pipeline);
  for (AddedToken& token : pipeline.added) token.left_strip = token.text == "<mask>";
  return pipeline;
}

Pipeline read_byt5(const JsonObject& config) {
  constexpr TokenId kFirstByte = 3, kBytes = 256, kUsualExtra = 125;
  const int64_t extra = config.integer("extra_ids", kUsualExtra);
  if (extra < 0 || extra > 1 << 16) config.fail("extra_ids", "is out of range");
  Json file = Json::parse(R"({
      "model": {"type": "BPE", "merges": []},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false},
      "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false},
      "post_processor": {"type": "TemplateProcessing",
          "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
          "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}},
                   {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
          "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}})",
      JsonLimits::settings());
  for (int byte = 0; byte < kBytes; ++byte)
    file["model"]["vocab"][spelt(std::string(1, static_cast<char>(byte)))] = kFirstByte + byte;
  Pipeline pipeline = read_pipeline(file, config.where());
  TokenId id = 0;
  for (const char* piece : {"<pad>", "</s>", "<unk>"})
    pipeline.added.push_back({.id = id++, .text = piece, .special = true, .left_strip = true, .right_strip = true});
  for (int64_t i = 0; i < extra; ++i)
    pipeline.added.push_back({.id = static_cast<TokenId>(kFirstByte + kBytes + i),
        .text = "<extra_id_" + std::to_string(i) + ">",
        .special = true});
  return pipeline;
}

std::string read_tokenizer_config(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json", chat = folder + "/chat_template.jinja";
  std::string text = text_if_there(path);
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
  constexpr std::string_view kKinds =
      "xlm-roberta=XLMRoberta camembert=Camembert mbart=MBart m2m_100=Nllb pegasus=Pegasus deberta-v2=DebertaV2 "
      "roberta=Roberta bart=Bart mpnet=MPNet gpt_neox=GPTNeoX qwen2=Qwen2 qwen3=Qwen2 qwen3_moe=Qwen2 t5=T5 mt5=T5 "
      "albert=Albert llama=Llama gemma=Gemma gemma2=Gemma gemma3_text=Gemma gemma3=Gemma";
  for (const std::string_view row : split(kKinds, ' '))
    if (row.starts_with(model + "=")) return std::string(row.substr(model.size() + 1));
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
    std::erase_if(
        pipeline.added, [&](const AddedToken& known) { return known.id == token.id || known.text == token.text; });
    pipeline.added.push_back(std::move(token));
  }
}

void set_roles_from_files(PretrainedTokenizer& tokenizer, const JsonObject& config, const JsonObject& map) {
  bool any = false;
  for (const Role& role : all_roles()) any = any || config.find(role.key) || map.find(role.key);
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
  // Files have 10^30 for no limit.
  if (const Json* found = config.find("model_max_length"); found && found->is_number())
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
