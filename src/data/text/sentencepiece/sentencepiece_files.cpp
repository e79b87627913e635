#include <filesystem>

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

// What a folder is for: its tokenizer's class, or the type of its model.
std::string tokenizer_kind(const std::string& type, const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!type.empty() || !file_exists(path)) return type;
  const Json json = Json::parse(read_file(path), "'" + path + "'", JsonLimits::settings());
  const std::string model = JsonObject(json, "'" + path + "':").text("model_type", "");
  return model == "xlm-roberta" ? "XLMRoberta" : model == "camembert" ? "Camembert" : "";
}

// The ids of fairseq: its own special tokens come first, then the model's pieces but for its special ones (of CamemBERT
// but for the unknown one), then the mask.
std::string fairseq_vocabulary(const SentencePieceModelFile& file, bool camembert) {
  std::vector<std::string> pieces{"<s>", "<pad>", "</s>", "<unk>"};
  if (camembert) pieces = {"<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"};
  for (size_t id = camembert ? 1 : 3; id < file.pieces.size(); ++id) pieces.push_back(file.pieces[id].text);
  pieces.emplace_back("<mask>");
  std::string vocabulary;
  for (size_t id = 0; id < pieces.size(); ++id)
    vocabulary += (id > 0 ? "," : "{") + Json(pieces[id]).dump() + ":" + std::to_string(id);
  return vocabulary + "}";
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
  // T5's special tokens: pad, end, unknown, and no begin.
  const bool t5 = type.starts_with("T5") || (type.empty() && has_piece(file, 0, "<pad>") &&
                                             has_piece(file, 1, "</s>") && has_piece(file, 2, "<unk>"));
  const bool llama = type.starts_with("Llama") || (type.empty() && has_piece(file, 0, "<unk>") &&
                                                   has_piece(file, 1, "<s>") && has_piece(file, 2, "</s>"));
  options.add_begin = config.flag("add_bos_token", llama);
  options.add_end = config.flag("add_eos_token", t5 || marian);
  options.extra_ids = config.integer("extra_ids", t5 && path.ends_with("spiece.model") ? 100 : 0);
  if (options.extra_ids < 0 || options.extra_ids > 10000) config.fail("extra_ids", "is out of range");
  // A name that a folder is searched for.
  const bool usual = marian || name == "spiece.model" || name == "sentencepiece.bpe.model";
  options.file_name = usual ? name : "tokenizer.model";
  if (marian) {
    options.vocabulary_path = folder + "/vocab.json";
    options.vocabulary = read_if_there(options.vocabulary_path);
  }
  const std::string kind = tokenizer_kind(type, folder);
  const bool camembert = kind.starts_with("Camembert"), fairseq = camembert || kind.starts_with("XLMRoberta");
  if (fairseq) {
    options.add_begin = options.add_end = true;
    options.vocabulary_path = path;
    options.vocabulary = fairseq_vocabulary(file, camembert);
  }
  const std::string config_text = options.config_json;
  auto tokenizer =
      std::make_unique<SentencePiecePretrained>(std::move(file), std::move(bytes), path, std::move(options));
  // Marian's target side keeps the roles of the shared vocabulary.
  if ((marian || fairseq) && tokenizer->roles().pad == kNoToken) {
    TokenRoles roles = tokenizer->roles();
    roles.pad = tokenizer->id_of("<pad>");
    if (fairseq) roles.mask = tokenizer->id_of("<mask>");
    tokenizer->set_roles(roles);
  }
  set_roles_from_files(*tokenizer, config_text, config_path, read_if_there(map_path), map_path);
  return tokenizer;
}

}  // namespace linnet
