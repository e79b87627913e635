#include "data/text/pipeline/subword_model.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/pipeline/tokenizer_tables.h"

namespace linnet {
namespace {

// Old files do not name the type.
std::string guess_type(const JsonObject& model) {
  return model.has("merges") ? "BPE" : model.has("unk_id") ? "Unigram" : "WordPiece";
}

}  // namespace

SubwordModel::SubwordModel(const TokenizerTables* tables) {
  if (tables) vocabulary_ = tables->vocabulary(), owner_ = tables->owner();
}

SubwordModel::SubwordModel(const JsonObject& json, const TokenizerTables* tables) : SubwordModel(tables) {
  if (tables) return;
  const Json& pieces = json.at("vocab");
  if (!pieces.is_object()) json.fail("vocab", "is not an object");
  for (const auto& [piece, id] : pieces.items()) {
    if (!id.is_number() || id.is_float()) json.fail("vocab", "has an id that is no integer");
    if (!id.is_integer(0, Vocabulary::kMaxId) || !vocabulary_.add(piece, id.get<TokenId>()))
      json.fail("vocab", "has an id that is out of range or comes twice: " + id.dump());
  }
}

std::string SubwordModel::to_json() const {
  std::string json = settings().dump();
  json.back() = ',';
  return json + pieces_json() + "}";
}

std::string SubwordModel::pieces_json() const {
  std::string text = "\"vocab\":{";
  const char* separator = "\n";
  for (TokenId id = 0; id < vocabulary_.size(); ++id) {
    if (!vocabulary_.has(id)) continue;
    text += std::exchange(separator, ",\n") + quote_json(vocabulary_.piece(id)) + ":" + std::to_string(id);
  }
  return text + "}";
}

std::unique_ptr<SubwordModel> read_model(const JsonObject& json, bool byte_level, const TokenizerTables* tables) {
  const std::string type = json.text("type", guess_type(json));
  if (byte_level && type != "BPE") json.fail("of type " + type + " does not go with a ByteLevel pre-tokenizer");
  if (type == "BPE") return read_bpe(json, byte_level, tables);
  if (type == "WordPiece") return read_wordpiece(json, tables);
  if (type == "WordLevel") return read_word_level(json, tables);
  if (type == "Unigram") return read_unigram(json, tables);
  fail_unknown(json, "type", type);
}

}  // namespace linnet
