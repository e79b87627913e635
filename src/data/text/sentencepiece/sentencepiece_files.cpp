#include <filesystem>
#include <ranges>
#include "base/files.h"
#include "base/json_reader.h"
#include "data/text/pretrained_files.h"
#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "data/text/sentencepiece/sentencepiece_proto.h"

namespace linnet {
namespace {

bool has_piece(const SentencePieceModelFile& file, size_t id, std::string_view text) {
  return id < file.pieces.size() && file.pieces[id].text == text;
}

// The languages of M2M100's class, in the order of their ids, for folders that do not list them.
constexpr std::string_view kM2mLanguages =
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht "
    "hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl "
    "ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu";
constexpr std::string_view kWmt21Languages = "en ha is ja cs ru zh de";

std::vector<std::string> m2m_languages(const std::string& codes) {
  std::vector<std::string> languages;
  for (const auto code : std::views::split(codes == "wmt21" ? kWmt21Languages : kM2mLanguages, ' '))
    languages.push_back("__" + std::string(code.begin(), code.end()) + "__");
  return languages;
}

// M2M100's vocab.json, whose languages come after it (older versions of Linnet wrote them into it).
std::string with_languages(const std::string& vocabulary, const std::string& path,
                           const std::vector<std::string>& languages) {
  Json json = Json::parse(vocabulary, "'" + path + "'", JsonLimits::tables());
  int64_t next = static_cast<int64_t>(json.size());
  for (const std::string& language : languages)
    if (!json.contains(language)) json[language] = next++;
  return json.dump();
}

}  // namespace

std::unique_ptr<PretrainedTokenizer> read_sentencepiece_files(const std::string& path, const std::string& folder) {
  const std::string config_path = folder + "/tokenizer_config.json", map_path = folder + "/special_tokens_map.json";
  const auto read_if_there = [](const std::string& file) {
    return file_exists(file) ? read_file(file) : std::string();
  };
  SentencePieceOptions options;
  options.config_json = read_tokenizer_config(folder);
  const Json json = parse_tokenizer_config(options.config_json, config_path);
  const JsonObject config(json, "'" + config_path + "':");
  const std::string type = config.text("tokenizer_class", "");
  const std::string name = std::filesystem::path(path).filename().string();
  std::string bytes = read_file(path);
  SentencePieceModelFile file = read_sentencepiece_model(bytes, path);
  const bool marian = path.ends_with(".spm");
  const std::string kind = tokenizer_kind(config, folder);
  const std::string map = read_if_there(map_path);
  const Json map_json = parse_tokenizer_config(map, map_path);
  const JsonObject special(map_json, "'" + map_path + "':");
  constexpr const char* kMore = "additional_special_tokens";
  std::vector<std::string> languages = special.has(kMore)  ? special.texts(kMore)
                                       : config.has(kMore) ? config.texts(kMore)
                                                           : std::vector<std::string>();
  // T5's special tokens: pad, end, unknown, and no begin.
  const bool t5 =
      kind.empty() && has_piece(file, 0, "<pad>") && has_piece(file, 1, "</s>") && has_piece(file, 2, "<unk>");
  const bool llama =
      type.empty() && has_piece(file, 0, "<unk>") && has_piece(file, 1, "<s>") && has_piece(file, 2, "</s>");
  options.add_begin = config.flag("add_bos_token", llama);
  options.add_end = config.flag("add_eos_token", t5 || marian);
  options.extra_ids = config.integer("extra_ids", t5 && path.ends_with("spiece.model") ? 100 : 0);
  if (options.extra_ids < 0 || options.extra_ids > 10000) config.fail("extra_ids", "is out of range");
  // A name that a folder is searched for.
  const bool usual = marian || name == "spiece.model" || name == "sentencepiece.bpe.model" || name == "spm.model";
  options.file_name = usual ? name : "tokenizer.model";
  if (marian) {
    options.vocabulary_path = folder + "/vocab.json";
    options.vocabulary = read_if_there(options.vocabulary_path);
    options.text_tokens = {"</s>", "<unk>", "<pad>"};
    options.language_marks = true;
  }
  const std::string pieces = folder + "/vocab.json";
  const bool m2m = (kind.starts_with("M2M100") || kind.starts_with("Nllb")) && file_exists(pieces);
  if (m2m) {
    if (languages.empty()) languages = m2m_languages(config.text("language_codes", "m2m100"));
    options.add_end = true;
    options.vocabulary_path = pieces;
    // transformers numbers languages from the end of the file on: it is given back without them.
    options.vocabulary_file = read_file(pieces);
    options.vocabulary = with_languages(options.vocabulary_file, pieces, languages);
    options.text_tokens = languages;
    for (const char* token : {"<s>", "</s>", "<pad>", "<unk>"}) options.text_tokens.emplace_back(token);
    options.first_piece = "__" + config.text("src_lang", "en") + "__";
  }
  // files() gives neither config.json nor special_tokens_map.json.
  Json kept = json;
  if (type.empty() && !kind.empty()) kept["tokenizer_class"] = kind + "Tokenizer";
  if (!languages.empty()) kept[kMore] = languages;
  options.config_json = kept.dump();
  const std::string config_text = options.config_json;
  auto tokenizer =
      std::make_unique<SentencePiecePretrained>(std::move(file), std::move(bytes), path, std::move(options));
  // Marian's target side keeps the roles of the shared vocabulary.
  if ((marian || m2m) && tokenizer->roles().pad == kNoToken) {
    TokenRoles roles = tokenizer->roles();
    roles.pad = tokenizer->id_of("<pad>");
    tokenizer->set_roles(roles);
  }
  set_roles_from_files(*tokenizer, config_text, config_path, map, map_path);
  return tokenizer;
}

}  // namespace linnet
