// WordPiece as BERT cuts words, and tokenizers' WordLevel, a vocabulary of whole words.
#include "base/fail.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

// The longest piece that fits, then the longest "##" piece, and so on. A word that is too long, or that pieces do not
// cover, is the unknown token, which the vocabulary has.
class WordPieceModel : public SubwordModel {
 public:
  WordPieceModel(const JsonObject& json, const TokenizerTables* tables)
      : SubwordModel(json, tables),
        unknown_piece_(json.text("unk_token", "[UNK]")),
        prefix_(json.text("continuing_subword_prefix", "##")),
        longest_word_(json.integer("max_input_chars_per_word", 100)),
        unknown_(vocabulary_.find(unknown_piece_)) {
    if (unknown_ < 0) fail_user(json.where(), " has no unknown token '", unknown_piece_, "' in its vocabulary");
  }

  const char* kind() const override { return "wordpiece"; }
  Json settings() const override {
    return {{"type", "WordPiece"},
            {"unk_token", unknown_piece_},
            {"continuing_subword_prefix", prefix_},
            {"max_input_chars_per_word", longest_word_}};
  }

  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const override {
    const size_t first = tokens.size();
    const auto give_up = [&] {
      tokens.resize(first);
      tokens.push_back({unknown_, static_cast<uint32_t>(word.size())});
    };
    // Bytes are at least characters.
    if (static_cast<int64_t>(word.size()) > longest_word_ &&
        static_cast<int64_t>(count_code_points(word)) > longest_word_)
      return give_up();
    std::string& text = scratch.text;
    for (size_t begin = 0; begin < word.size();) {
      text.assign(begin > 0 ? prefix_ : "");
      const size_t prefix = text.size(), room = vocabulary_.longest() > prefix ? vocabulary_.longest() - prefix : 0;
      text.append(word.substr(begin, room));
      TokenId id = -1;
      size_t end = begin + text.size() - prefix;
      while (end > begin) {
        id = vocabulary_.find(text);
        if (id >= 0) break;
        do {  // one character less
          --end;
          text.pop_back();
        } while (end > begin && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80);
      }
      if (id < 0) return give_up();
      tokens.push_back({id, static_cast<uint32_t>(end)});
      begin = end;
    }
  }

 private:
  std::string unknown_piece_, prefix_;
  int64_t longest_word_;  // characters
  TokenId unknown_;
};

class WordLevelModel : public SubwordModel {
 public:
  WordLevelModel(const JsonObject& json, const TokenizerTables* tables)
      : SubwordModel(json, tables),
        unknown_piece_(json.text("unk_token", "<unk>")),
        where_(json.where()),
        unknown_(vocabulary_.find(unknown_piece_)) {}

  const char* kind() const override { return "wordlevel"; }
  Json settings() const override { return {{"type", "WordLevel"}, {"unk_token", unknown_piece_}}; }

  void tokenize(std::string_view word, ModelScratch&, std::vector<ModelToken>& tokens) const override {
    const TokenId known = vocabulary_.find(word), id = known >= 0 ? known : unknown_;
    if (id < 0) fail_user(where_, " has neither the word ", quote_json(word), " nor '", unknown_piece_, "'");
    tokens.push_back({id, static_cast<uint32_t>(word.size())});
  }

 private:
  std::string unknown_piece_, where_;
  TokenId unknown_;
};

}  // namespace

std::unique_ptr<SubwordModel> read_wordpiece(const JsonObject& json, const TokenizerTables* tables) {
  return std::make_unique<WordPieceModel>(json, tables);
}

std::unique_ptr<SubwordModel> read_word_level(const JsonObject& json, const TokenizerTables* tables) {
  return std::make_unique<WordLevelModel>(json, tables);
}

}  // namespace linnet
