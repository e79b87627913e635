#include <filesystem>
#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "data/text/pipeline/tokenizer_tables.h"
#include "data/text/pretrained_files.h"
#include "data/text/sentencepiece/sentencepiece_pretrained.h"

namespace linnet {
namespace {
// tokenizer_config.json and special_tokens_map.json of a folder.
struct Settings {
  explicit Settings(const std::string& folder) : folder(folder) {}
  Settings(const Settings&) = delete;

  const std::string folder, config_path = folder + "/tokenizer_config.json",
                            map_path = folder + "/special_tokens_map.json";
  const std::string config_text = read_tokenizer_config(folder);
  const Json json = parse_tokenizer_config(config_text, config_path),
             map_json = parse_tokenizer_config(text_if_there(map_path), map_path);
  const JsonObject config{json, "'" + config_path + "':"}, map{map_json, "'" + map_path + "':"};
  std::string kind() const { return tokenizer_kind(config, folder); }
  // ByT5's tokens are bytes: its folder has settings and no vocabulary.
  bool has_bytes() const { return kind().starts_with("ByT5"); }
};

bool has_piece(const SentencePieceModelFile& file, size_t id, std::string_view text) {
  return id < file.pieces.size() && file.pieces[id].text == text;
}

// The languages of M2M100's class, in id order, for folders that do not list them.
constexpr std::string_view kM2mLanguages =
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht "
    "hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl "
    "ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu";
constexpr std::string_view kWmt21Languages = "en ha is ja cs ru zh de";

std::vector<std::string> m2m_languages(const std::string& codes) {
  return mapped(split(codes == "wmt21" ? kWmt21Languages : kM2mLanguages, ' '),
      [&](std::string_view code) { return "__" + std::string(code) + "__"; });
}

// M2M100's vocab.json, followed by the languages (older versions of Linnet wrote them into it).
std::string with_languages(
    const std::string& vocabulary, const std::string& path, const std::vector<std::string>& languages) {
  Json json = Json::parse(vocabulary, "'" + path + "'", JsonLimits::tables());
  int64_t next = std::ssize(json);
  for (const std::string& language : languages)
    if (!json.contains(language)) json[language] = next++;
  return json.dump();
}

// A SentencePiece model with `folder`'s other files: Marian's (source.spm or target.spm and vocab.json), M2M100's (with
// vocab.json), or one of an unknown class.
std::unique_ptr<PretrainedTokenizer> read_sentencepiece_files(const std::string& path, const Settings& settings) {
  const JsonObject &config = settings.config, &map = settings.map;
  const std::string &folder = settings.folder, kind = settings.kind();
  SentencePieceOptions options;
  const std::string type = config.text("tokenizer_class", "");
  const std::string name = std::filesystem::path(path).filename().string();
  std::string bytes = read_file(path);
  SentencePieceModelFile file = read_sentencepiece_model(bytes, path);
  const bool marian = path.ends_with(".spm");
  constexpr const char* kMore = "additional_special_tokens";
  std::vector<std::string> languages = map.has(kMore)      ? map.texts(kMore)
                                       : config.has(kMore) ? config.texts(kMore)
                                                           : std::vector<std::string>();
  options.text_tokens = languages;
  // T5's special tokens: pad, end, unknown, and no begin.
  const bool t5 =
      kind.empty() && has_piece(file, 0, "<pad>") && has_piece(file, 1, "</s>") && has_piece(file, 2, "<unk>");
  const bool llama =
      type.empty() && has_piece(file, 0, "<unk>") && has_piece(file, 1, "<s>") && has_piece(file, 2, "</s>");
  options.add_begin = config.flag("add_bos_token", llama);
  options.add_end = config.flag("add_eos_token", t5 || marian);
  options.extra_ids = config.integer("extra_ids", t5 && path.ends_with("spiece.model") ? 100 : 0);
  if (options.extra_ids < 0 || options.extra_ids > 10000) config.fail("extra_ids", "is out of range");
  // A name by which a folder's file is found.
  const bool usual = marian || name == "spiece.model" || name == "sentencepiece.bpe.model" || name == "spm.model";
  options.file_name = usual ? name : "tokenizer.model";
  if (marian) {
    options.vocabulary_path = folder + "/vocab.json";
    options.vocabulary = text_if_there(options.vocabulary_path);
    options.text_tokens = {"</s>", "<unk>", "<pad>"};
    options.language_marks = true;
  }
  const std::string pieces = folder + "/vocab.json";
  const bool m2m = (kind.starts_with("M2M100") || kind.starts_with("Nllb")) && file_exists(pieces);
  if (m2m) {
    if (languages.empty()) languages = m2m_languages(config.text("language_codes", "m2m100"));
    options.add_end = true;
    options.vocabulary_path = pieces;
    // transformers numbers languages after the file's end, so it is written without them.
    options.vocabulary_file = read_file(pieces);
    options.vocabulary = with_languages(options.vocabulary_file, pieces, languages);
    options.text_tokens = languages;
    for (const char* token : {"<s>", "</s>", "<pad>", "<unk>"}) options.text_tokens.emplace_back(token);
    options.first_piece = "__" + config.text("src_lang", "en") + "__";
  }
  // files() gives neither config.json nor special_tokens_map.json.
  Json kept = settings.json;
  if (type.empty() && !kind.empty()) kept["tokenizer_class"] = kind + "Tokenizer";
  if (!languages.empty()) kept[kMore] = languages;
  options.config_json = kept.dump();
  auto tokenizer =
      std::make_unique<SentencePiecePretrained>(std::move(file), std::move(bytes), path, std::move(options));
  // Marian's target side keeps the roles of the shared vocabulary.
  if ((marian || m2m) && tokenizer->roles().pad == kNoToken) {
    TokenRoles roles = tokenizer->roles();
    roles.pad = tokenizer->id_of("<pad>");
    tokenizer->set_roles(roles);
  }
  set_roles_from_files(*tokenizer, JsonObject(kept, config.where()), map);
  return tokenizer;
}

constexpr std::initializer_list<const char*> kSentencePieceModels = {
    "spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "spm.model"};

// The path of the first of the names in the folder, or "".
std::string first_of(const std::string& folder, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (file_exists(folder + "/" + name)) return folder + "/" + name;
  return "";
}

std::unique_ptr<PretrainedTokenizer> finish(Pipeline pipeline, const Settings& settings) {
  if (pipeline.config_json.empty()) pipeline.config_json = settings.config_text;
  const Json json = parse_tokenizer_config(pipeline.config_json, settings.config_path);
  const JsonObject config(json, settings.config.where());
  auto tokenizer = std::make_unique<PipelineTokenizer>(std::move(pipeline));
  set_roles_from_files(*tokenizer, config, settings.map);
  tokenizer->add_to_template(config.flag("add_bos_token", false), config.flag("add_eos_token", false));
  return tokenizer;
}

// For files that have only the model's tokens.
std::unique_ptr<PretrainedTokenizer> finish_with_config(Pipeline pipeline, const Settings& settings) {
  add_tokens_of_config(settings.config, pipeline);
  return finish(std::move(pipeline), settings);
}

// A SentencePiece model, read as its class does if known.
std::unique_ptr<PretrainedTokenizer> read_sentencepiece(const std::string& file, const Settings& settings) {
  const std::string kind = settings.kind();
  const bool m2m100 = kind.starts_with("Nllb") && file_exists(settings.folder + "/vocab.json");
  if (file.ends_with(".spm") || m2m100 || !has_sentencepiece_pipeline(kind))
    return read_sentencepiece_files(file, settings);
  Json config = settings.json;
  if (!config.contains("tokenizer_class")) config["tokenizer_class"] = kind + "Tokenizer";
  return finish_with_config(read_sentencepiece_pipeline(read_file(file), file, kind, config, settings.map), settings);
}

// A packed model's tables beside the files of the folder, or null.
std::unique_ptr<PretrainedTokenizer> read_packed_tables(const Settings& settings) {
  const std::string path = settings.folder + "/" + kTokenizerTables;
  const PackedPath packed = split_packed_path(path);
  if (packed.packed.empty() || !file_exists(path)) return nullptr;
  return finish(read_tokenizer_tables(open_packed(packed.packed)->files.at(packed.inside), path), settings);
}
}  // namespace

std::unique_ptr<PretrainedTokenizer> load_pretrained_tokenizer(const std::string& path) {
  const bool is_folder = linnet::is_folder(path);
  if (!is_folder && !file_exists(path)) fail_user("there is no tokenizer '", path, "'");
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = is_folder ? path : parent.empty() ? "." : parent;
  const Settings settings(folder);
  if (is_folder)
    if (auto tokenizer = read_packed_tables(settings)) return tokenizer;
  const auto chosen = [&](std::initializer_list<const char*> names) -> std::string {
    if (is_folder) return first_of(folder, names);
    const std::string name = std::filesystem::path(path).filename().string();
    for (const char* candidate : names)
      if (name == candidate) return path;
    return "";
  };
  if (!is_folder && path.ends_with(".json") && chosen({"vocab.json", "encoder.json"}).empty())
    return finish(read_tokenizer_json(read_file(path), path), settings);
  if (const std::string file = chosen({"tokenizer.json"}); !file.empty()) {
    Pipeline pipeline = read_tokenizer_json(read_file(file), file);
    if (const std::string model = first_of(folder, kSentencePieceModels); !model.empty())
      pipeline.made_of[std::filesystem::path(model).filename().string()] = read_file(model);
    return finish(std::move(pipeline), settings);
  }
  // Marian's folders have a vocab.json, too.
  const bool is_model = path.ends_with(".model") || path.ends_with(".spm");
  std::string model = is_folder ? first_of(folder, kSentencePieceModels) : is_model ? path : "";
  if (is_folder && model.empty()) model = first_of(folder, {"source.spm"});
  if (!model.empty()) return read_sentencepiece(model, settings);
  if (!chosen({"vocab.json", "encoder.json", "merges.txt", "vocab.bpe"}).empty()) {
    const std::string vocabulary = first_of(folder, {"vocab.json", "encoder.json"});
    const std::string merges = first_of(folder, {"merges.txt", "vocab.bpe"});
    if (vocabulary.empty()) fail_user("'", folder, "' has no vocab.json or encoder.json beside the merges");
    if (merges.empty()) fail_user("'", folder, "' has no merges.txt or vocab.bpe beside the vocabulary");
    return finish_with_config(
        read_gpt2_files(read_file(vocabulary), vocabulary, read_file(merges), merges, settings.kind(), settings.config),
        settings);
  }
  const bool is_text = !is_folder && path.ends_with(".txt");
  if (const std::string file = is_text ? path : is_folder ? first_of(folder, {"vocab.txt"}) : ""; !file.empty())
    return finish_with_config(read_bert_vocabulary(read_file(file), file, settings.kind(), settings.config), settings);
  if (is_folder && settings.has_bytes()) return finish_with_config(read_byt5(settings.config), settings);
  fail_user("'", path,
      "' holds no tokenizer of a kind that Linnet knows (tokenizer.json, vocab.txt, vocab.json with "
      "merges.txt, or a model of SentencePiece)",
      missing_model_hint(path));
}

bool has_pretrained_tokenizer(const std::string& folder) {
  return !first_of(folder, {"tokenizer.json", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "spm.model",
                               "source.spm", "vocab.json", "encoder.json", "merges.txt", "vocab.bpe", "vocab.txt"})
              .empty() ||
         Settings(folder).has_bytes();
}
}  // namespace linnet
