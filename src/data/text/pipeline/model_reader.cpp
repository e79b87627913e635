#include "data/text/bpe/bpe_model.h"
#include "data/text/pipeline/pipeline_reader-inl.h"
#include "data/text/sentencepiece/unigram_model.h"
#include "data/text/wordpiece/word_level_model.h"
#include "data/text/wordpiece/wordpiece_model.h"

namespace linnet {
namespace {

Vocabulary read_vocabulary(const JsonObject& model) {
  const Json& pieces = model.at("vocab");
  if (!pieces.is_object()) model.fail("vocab", "is not an object");
  Vocabulary vocabulary;
  for (const auto& [piece, id] : pieces.items()) {
    if (!id.is_number() || id.is_float()) model.fail("vocab", "has an id that is no integer");
    if (!id.is_integer(0, Vocabulary::kMaxId) || !vocabulary.add(piece, id.get<TokenId>()))
      model.fail("vocab", "has an id that is out of range or comes twice: " + id.dump());
  }
  return vocabulary;
}

// "a b", or ["a", "b"] as newer files have it.
std::vector<std::pair<std::string, std::string>> read_merges(const JsonObject& model) {
  const Json& list = model.list("merges");
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(list.size());
  for (const Json& merge : list) {
    const std::string number = std::to_string(merges.size() + 1);
    if (merge.is_string()) {
      const std::string& text = merge.text();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        model.fail("merge " + number + " is not two pieces and a space");
      merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].text(), merge[1].text());
    } else {
      model.fail("merge " + number + " is not two pieces");
    }
  }
  return merges;
}

std::unique_ptr<SubwordModel> read_bpe(const JsonObject& model, bool byte_level, const TokenizerTables* tables) {
  if (model.has("dropout") && !(model.at("dropout").is_number() && model.at("dropout").get<double>() == 0))
    model.fail("has a dropout, which Linnet does not do");
  BpeOptions options;
  options.byte_level = byte_level;
  options.byte_fallback = model.flag("byte_fallback", false);
  options.fuse_unknown = model.flag("fuse_unk", false);
  options.ignore_merges = model.flag("ignore_merges", false);
  options.unknown_piece = model.text("unk_token", "");
  options.continuing_prefix = model.text("continuing_subword_prefix", "");
  options.word_suffix = model.text("end_of_word_suffix", "");
  if (tables) return std::make_unique<BpeModel>(*tables, std::move(options));
  return std::make_unique<BpeModel>(read_vocabulary(model), read_merges(model), std::move(options), model.where());
}

std::unique_ptr<SubwordModel> read_wordpiece(const JsonObject& model, const TokenizerTables* tables) {
  auto wordpiece = std::make_unique<WordPieceModel>(
      tables ? tables->vocabulary() : read_vocabulary(model), model.text("unk_token", "[UNK]"),
      model.text("continuing_subword_prefix", "##"), model.integer("max_input_chars_per_word", 100), model.where());
  if (tables) wordpiece->keep(tables->owner());
  return wordpiece;
}

std::unique_ptr<SubwordModel> read_word_level(const JsonObject& model, const TokenizerTables* tables) {
  auto words = std::make_unique<WordLevelModel>(tables ? tables->vocabulary() : read_vocabulary(model),
                                                model.text("unk_token", "<unk>"), model.where());
  if (tables) words->keep(tables->owner());
  return words;
}

// [[piece, score], ...] in the order of the ids.
std::unique_ptr<SubwordModel> read_unigram(const JsonObject& model, const TokenizerTables* tables) {
  const bool byte_fallback = model.flag("byte_fallback", false);
  const int64_t unknown = model.integer("unk_id", -1);
  const auto check_unknown = [&](size_t pieces) {
    if (unknown < -1 || unknown >= static_cast<int64_t>(pieces)) model.fail("has an unk_id outside its vocabulary");
  };
  if (tables) {
    check_unknown(tables->table<Vocabulary::Location>(TokenizerTable::kLocations).size());
    return std::make_unique<UnigramModel>(*tables, static_cast<TokenId>(unknown), byte_fallback);
  }
  const Json& list = model.list("vocab");
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (const Json& entry : list) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() ||
        !vocabulary.add(entry[0].text(), static_cast<TokenId>(scores.size())))
      model.fail("vocab", "has an entry " + std::to_string(scores.size()) + " that is not a piece and its score");
    scores.push_back(entry[1].get<double>());
  }
  check_unknown(scores.size());
  return std::make_unique<UnigramModel>(std::move(vocabulary), std::move(scores), static_cast<TokenId>(unknown),
                                        byte_fallback, model.where());
}

// Old files do not name the type.
std::string guess_type(const JsonObject& model) {
  return model.has("merges") ? "BPE" : model.has("unk_id") ? "Unigram" : "WordPiece";
}

}  // namespace

std::unique_ptr<SubwordModel> read_model(const JsonObject& json, bool byte_level, const TokenizerTables* tables) {
  const std::string type = json.text("type", guess_type(json));
  if (byte_level && type != "BPE") json.fail("of type " + type + " does not go with a ByteLevel pre-tokenizer");
  if (type == "BPE") return read_bpe(json, byte_level, tables);
  if (type == "WordPiece") return read_wordpiece(json, tables);
  if (type == "WordLevel") return read_word_level(json, tables);
  if (type == "Unigram") return read_unigram(json, tables);
  json.fail("has the type '" + type + "', which Linnet does not know");
}

}  // namespace linnet
