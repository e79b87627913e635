#include <filesystem>
#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "base/packed_files.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/pipeline/tokenizer_tables.h"
#include "data/text/pretrained_files.h"

namespace linnet {
namespace {

constexpr std::initializer_list<const char*> kSentencePieceModels = {"spiece.model", "tokenizer.model",
                                                                     "sentencepiece.bpe.model", "spm.model"};

// The first of the names that is in the folder, with its path; "" when none is.
std::string first_of(const std::string& folder, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (file_exists(folder + "/" + name)) return folder + "/" + name;
  return "";
}

std::string read_if_there(const std::string& path) { return file_exists(path) ? read_file(path) : std::string(); }

std::unique_ptr<PretrainedTokenizer> finish(Pipeline pipeline, const std::string& folder) {
  const std::string config_path = folder + "/tokenizer_config.json", map_path = folder + "/special_tokens_map.json";
  if (pipeline.config_json.empty()) pipeline.config_json = read_tokenizer_config(folder);
  const std::string config = pipeline.config_json;
  auto tokenizer = std::make_unique<PipelineTokenizer>(std::move(pipeline));
  set_roles_from_files(*tokenizer, config, config_path, read_if_there(map_path), map_path);
  const Json json = parse_tokenizer_config(config, config_path);
  const JsonObject flags(json, "'" + config_path + "':");
  tokenizer->add_to_template(flags.flag("add_bos_token", false), flags.flag("add_eos_token", false));
  return tokenizer;
}

// The same of files that have no tokens but the model's.
template <typename Read>
std::unique_ptr<PretrainedTokenizer> read_with_config(const std::string& folder, const Read& read) {
  const std::string path = folder + "/tokenizer_config.json";
  const Json json = parse_tokenizer_config(read_if_there(path), path);
  const JsonObject config(json, "'" + path + "':");
  Pipeline pipeline = read(tokenizer_kind(config, folder), config);
  add_tokens_of_config(config, pipeline);
  return finish(std::move(pipeline), folder);
}

// A SentencePiece model, by the class that reads it where one is known.
std::unique_ptr<PretrainedTokenizer> read_sentencepiece(const std::string& file, const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json", map_path = folder + "/special_tokens_map.json";
  Json settings = parse_tokenizer_config(read_tokenizer_config(folder), path);
  const std::string kind = tokenizer_kind(JsonObject(settings, "'" + path + "':"), folder);
  const bool m2m100 = kind.starts_with("Nllb") && file_exists(folder + "/vocab.json");
  if (file.ends_with(".spm") || m2m100 || !has_sentencepiece_pipeline(kind))
    return read_sentencepiece_files(file, folder);
  if (!settings.contains("tokenizer_class")) settings["tokenizer_class"] = kind + "Tokenizer";
  const Json map = parse_tokenizer_config(read_if_there(map_path), map_path);
  Pipeline pipeline =
      read_sentencepiece_pipeline(read_file(file), file, kind, settings, JsonObject(map, "'" + map_path + "':"));
  add_tokens_of_config(JsonObject(settings, "'" + path + "':"), pipeline);
  return finish(std::move(pipeline), folder);
}

// ByT5's tokens are bytes: its folder has settings and no vocabulary.
bool is_byt5(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  if (!file_exists(path) && !file_exists(folder + "/config.json")) return false;
  const Json json = parse_tokenizer_config(read_if_there(path), path);
  return tokenizer_kind(JsonObject(json, "'" + path + "':"), folder).starts_with("ByT5");
}

// The tables that a packed model has beside the files of the folder; null where it has none.
std::unique_ptr<PretrainedTokenizer> read_packed_tables(const std::string& folder) {
  const std::string path = folder + "/" + kTokenizerTables;
  const PackedPath packed = split_packed_path(path);
  if (packed.packed.empty() || !file_exists(path)) return nullptr;
  return finish(read_tokenizer_tables(open_packed(packed.packed)->files.at(packed.inside), path), folder);
}

}  // namespace

std::unique_ptr<PretrainedTokenizer> load_pretrained_tokenizer(const std::string& path) {
  const bool is_folder = linnet::is_folder(path);
  if (is_folder)
    if (auto tokenizer = read_packed_tables(path)) return tokenizer;
  if (!is_folder && !file_exists(path)) fail_user("there is no tokenizer '" + path + "'");
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = is_folder ? path : parent.empty() ? "." : parent;
  const auto chosen = [&](std::initializer_list<const char*> names) -> std::string {
    if (is_folder) return first_of(folder, names);
    const std::string name = std::filesystem::path(path).filename().string();
    for (const char* candidate : names)
      if (name == candidate) return path;
    return "";
  };
  if (!is_folder && path.ends_with(".json") && chosen({"vocab.json", "encoder.json"}).empty())
    return finish(read_tokenizer_json(read_file(path), path), folder);
  if (const std::string file = chosen({"tokenizer.json"}); !file.empty()) {
    Pipeline pipeline = read_tokenizer_json(read_file(file), file);
    if (const std::string model = first_of(folder, kSentencePieceModels); !model.empty())
      pipeline.made_of[std::filesystem::path(model).filename().string()] = read_file(model);
    return finish(std::move(pipeline), folder);
  }
  // Marian's folders have a vocab.json, too.
  const bool is_model = path.ends_with(".model") || path.ends_with(".spm");
  std::string model = is_folder ? first_of(folder, kSentencePieceModels) : is_model ? path : "";
  if (is_folder && model.empty()) model = first_of(folder, {"source.spm"});
  if (!model.empty()) return read_sentencepiece(model, folder);
  if (!chosen({"vocab.json", "encoder.json", "merges.txt", "vocab.bpe"}).empty()) {
    const std::string vocabulary = first_of(folder, {"vocab.json", "encoder.json"});
    const std::string merges = first_of(folder, {"merges.txt", "vocab.bpe"});
    if (vocabulary.empty()) fail_user("'" + folder + "' has no vocab.json or encoder.json beside the merges");
    if (merges.empty()) fail_user("'" + folder + "' has no merges.txt or vocab.bpe beside the vocabulary");
    return read_with_config(folder, [&](const std::string& kind, const JsonObject& config) {
      return read_gpt2_files(read_file(vocabulary), vocabulary, read_file(merges), merges, kind, config);
    });
  }
  if (const std::string file = is_folder                ? first_of(folder, {"vocab.txt"})
                               : path.ends_with(".txt") ? path
                                                        : "";
      !file.empty())
    return read_with_config(folder, [&](const std::string& kind, const JsonObject& config) {
      return read_bert_vocabulary(read_file(file), file, kind, config);
    });
  if (is_folder && is_byt5(folder))
    return read_with_config(folder, [](const std::string&, const JsonObject& config) { return read_byt5(config); });
  fail_user("'" + path +
            "' holds no tokenizer of a kind that Linnet knows (tokenizer.json, vocab.txt, vocab.json with "
            "merges.txt, or a model of SentencePiece)" +
            missing_model_hint(path));
}

bool has_pretrained_tokenizer(const std::string& folder) {
  return !first_of(folder, {"tokenizer.json", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "spm.model",
                            "source.spm", "vocab.json", "encoder.json", "merges.txt", "vocab.bpe", "vocab.txt"})
              .empty() ||
         is_byt5(folder);
}

}  // namespace linnet
