#include <map>

#include "data/text/bpe/bpe_model.h"
#include "data/text/pipeline/pipeline_reader-inl.h"
#include "data/text/sentencepiece/unigram_model.h"
#include "data/text/wordpiece/wordpiece_model.h"

namespace linnet {
namespace {

using nlohmann::json;

void add_piece(const JsonObject& model, const std::string& piece, const json& id, Vocabulary& vocabulary) {
  if (!id.is_number_integer()) model.fail("'vocab' has an id that is no integer");
  const bool fits = !id.is_number_unsigned() || id.get<uint64_t>() <= Vocabulary::kMaxId;
  const int64_t value = fits ? id.get<int64_t>() : -1;
  if (value < 0 || value > Vocabulary::kMaxId || !vocabulary.add(piece, static_cast<TokenId>(value)))
    model.fail("'vocab' has an id that is out of range or comes twice: " + id.dump());
}

// Of a piece that comes twice the last id counts, as in any JSON object.
Vocabulary read_vocabulary(const JsonObject& model, const JsonMembers& members) {
  const json& pieces = model.at("vocab");
  if (!pieces.is_object()) model.fail("'vocab' is not an object");
  Vocabulary vocabulary;
  for (const auto& [piece, id] : pieces.items()) add_piece(model, piece, id, vocabulary);
  for (const auto& [piece, id] : members) {
    if (vocabulary.find(piece) >= 0) {
      const std::map<std::string, json> last = [&] {
        std::map<std::string, json> found;
        for (const auto& [key, value] : members) found[key] = value;
        return found;
      }();
      vocabulary = {};
      for (const auto& [key, value] : last) add_piece(model, key, value, vocabulary);
      return vocabulary;
    }
    add_piece(model, piece, id, vocabulary);
  }
  return vocabulary;
}

// "a b", or ["a", "b"] as newer files have it.
std::vector<std::pair<std::string, std::string>> read_merges(const JsonObject& model) {
  const json& list = model.at("merges");
  if (!list.is_array()) model.fail("'merges' is not a list");
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(list.size());
  for (const json& merge : list) {
    const std::string number = std::to_string(merges.size() + 1);
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        model.fail("merge " + number + " is not two pieces and a space");
      merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      model.fail("merge " + number + " is not two pieces");
    }
  }
  return merges;
}

std::unique_ptr<SubwordModel> read_bpe(const JsonObject& model, bool byte_level, const JsonMembers& vocabulary,
                                       const TokenizerTables* tables) {
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
  return std::make_unique<BpeModel>(read_vocabulary(model, vocabulary), read_merges(model), std::move(options),
                                    model.where());
}

std::unique_ptr<SubwordModel> read_wordpiece(const JsonObject& model, const JsonMembers& vocabulary,
                                             const TokenizerTables* tables) {
  auto wordpiece = std::make_unique<WordPieceModel>(
      tables ? tables->vocabulary() : read_vocabulary(model, vocabulary), model.text("unk_token", "[UNK]"),
      model.text("continuing_subword_prefix", "##"), model.integer("max_input_chars_per_word", 100), model.where());
  if (tables) wordpiece->keep(tables->owner());
  return wordpiece;
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
  const json& list = model.at("vocab");
  if (!list.is_array()) model.fail("'vocab' is not a list");
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (const json& entry : list) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() ||
        !vocabulary.add(entry[0].get_ref<const std::string&>(), static_cast<TokenId>(scores.size())))
      model.fail("'vocab' has an entry " + std::to_string(scores.size()) + " that is not a piece and its score");
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

std::unique_ptr<SubwordModel> read_model(const JsonObject& json, bool byte_level, const JsonMembers& vocabulary,
                                         const TokenizerTables* tables) {
  const std::string type = json.text("type", guess_type(json));
  if (byte_level && type != "BPE") json.fail("of type " + type + " does not go with a ByteLevel pre-tokenizer");
  if (type == "BPE") return read_bpe(json, byte_level, vocabulary, tables);
  if (type == "WordPiece") return read_wordpiece(json, vocabulary, tables);
  if (type == "Unigram") return read_unigram(json, tables);
  json.fail("has the type '" + type + "', which Linnet does not know");
}

}  // namespace linnet
