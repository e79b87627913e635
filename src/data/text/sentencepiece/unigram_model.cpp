// The unigram model (Kudo 2018): of all ways to cut a word into pieces, the one with the largest sum of scores.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <span>
#include "base/fail.h"
#include "data/text/bpe/byte_alphabet.h"
#include "data/text/byte_trie.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/pipeline/tokenizer_tables.h"

namespace linnet {
namespace {

constexpr double kUnknownTokenPenalty = 10;  // below the lowest score, as in SentencePiece
constexpr size_t kMostBytes = 1 << 30;

// tokenizers reads the digits of a number as one integer and then divides by a power of ten (serde_json without its
// option float_roundtrip), which can end next to the nearest double. Ways through a word whose sums are equal but for
// the last bit would otherwise be chosen differently.
double as_tokenizers_reads(double value) {
  char text[40];
  char* const end = std::to_chars(text, text + sizeof text, value).ptr;  // the shortest digits, as files have them
  uint64_t digits = 0;
  int exponent = 0, written = 0;
  bool fraction = false;
  for (const char* c = text + (text[0] == '-'); c < end; ++c) {
    if (*c == 'e') {
      std::from_chars(c + (c[1] == '+' ? 2 : 1), end, written);
      break;
    }
    if (*c == '.') {
      fraction = true;
    } else {
      digits = 10 * digits + static_cast<uint64_t>(*c - '0');
      exponent -= fraction;
    }
  }
  exponent += written;
  double result = static_cast<double>(digits);
  if (exponent < -300 || exponent > 300) return value;
  const double power = std::stod("1e" + std::to_string(std::abs(exponent)));
  result = exponent < 0 ? result / power : result * power;
  return std::signbit(value) ? -result : result;
}

class UnigramModel : public SubwordModel {
 public:
  // A JSON's vocabulary is [[piece, score], ...] in the order of the ids; a score is the logarithm of the piece's
  // probability.
  UnigramModel(const JsonObject& json, const TokenizerTables* tables)
      : SubwordModel(tables), byte_fallback_(json.flag("byte_fallback", false)) {
    const std::string where = tables ? tables->where() : json.where();
    const int64_t unknown = json.integer("unk_id", -1);
    if (tables) {
      written_scores_ = tables->table<double>(TokenizerTable::kWrittenScores);
      scores_ = tables->table<double>(TokenizerTable::kScores);
    } else {
      read_pieces(json);
    }
    if (unknown < -1 || unknown >= vocabulary_.size()) json.fail("has an unk_id outside its vocabulary");
    unknown_ = static_cast<TokenId>(unknown);
    if (tables) {
      const auto pieces = static_cast<size_t>(vocabulary_.size());
      if (scores_.size() != pieces || written_scores_.size() != pieces)
        tables->fail("its scores are not those of its pieces");
      trie_ = ByteTrie(tables->table<ByteTrie::Unit>(TokenizerTable::kTrie), vocabulary_.size(), where);
    }
    for (const double score : scores_)
      if (!std::isfinite(score)) fail_user(where, " has a score that is not finite");
    unknown_score_ = (scores_.empty() ? 0 : *std::ranges::min_element(scores_)) - kUnknownTokenPenalty;
    for (int byte = 0; byte < 256; ++byte) byte_ids_[byte] = vocabulary_.find(byte_piece(byte));
  }

  const char* kind() const override { return "unigram"; }
  // Viterbi over the locations of the word. Equal scores: the way that was found first, which has the longer last
  // piece.
  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const override {
    constexpr uint32_t kNowhere = UINT32_MAX;
    auto& nodes = scratch.nodes;
    nodes.assign(word.size() + 1, {0, kNowhere, -1});
    trie_.visit_keys(word, [&](size_t begin, size_t end, TokenId id) {
      const double score = nodes[begin].score + (id < 0 ? unknown_score_ : scores_[static_cast<size_t>(id)]);
      ModelScratch::Node& node = nodes[end];
      if (node.begin == kNowhere || score > node.score)
        node = {score, static_cast<uint32_t>(begin), id < 0 ? unknown_ : id};
    });
    // Back from the end; neighbors without a piece become one unknown stretch.
    const size_t first = scratch.heap.size();
    auto& way = scratch.heap;  // {begin, end, id}
    for (auto end = static_cast<uint32_t>(word.size()); end > 0; end = nodes[end].begin) {
      const ModelScratch::Node& node = nodes[end];
      if (node.id == unknown_ && way.size() > first && way.back().merged == unknown_) way.back().rank = node.begin;
      else way.push_back({node.begin, end, node.id});
    }
    for (size_t i = way.size(); i > first; --i)
      emit(word, way[i - 1].rank, way[i - 1].location, way[i - 1].merged, tokens);
    way.resize(first);
  }

  Json settings() const override {
    return {{"type", "Unigram"}, {"unk_id", unknown_ < 0 ? Json() : Json(unknown_)}, {"byte_fallback", byte_fallback_}};
  }
  void add_tables(TokenizerTableWriter& tables) const override {
    tables.set(TokenizerTable::kWrittenScores, written_scores_);
    tables.set(TokenizerTable::kScores, scores_);
    tables.set(TokenizerTable::kTrie, trie_.units());
  }

 private:
  std::string pieces_json() const override {
    std::string json = "\"vocab\":[";
    for (TokenId id = 0; id < vocabulary_.size(); ++id)
      json += (id > 0 ? ",\n[" : "\n[") + quote_json(vocabulary_.piece(id)) + "," +
              Json(written_scores_[static_cast<size_t>(id)]).dump() + "]";
    return json + "]";
  }

  void read_pieces(const JsonObject& json) {
    size_t bytes = 0;
    for (const Json& entry : json.list("vocab")) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() ||
          !vocabulary_.add(entry[0].text(), static_cast<TokenId>(own_scores_.size())))
        json.fail("vocab", "has an entry " + std::to_string(own_scores_.size()) + " that is not a piece and its score");
      const double score = own_written_scores_.emplace_back(entry[1].get<double>());
      own_scores_.push_back(std::isfinite(score) ? as_tokenizers_reads(score) : score);
      bytes += entry[0].text().size();
    }
    if (bytes >= kMostBytes) fail_user(json.where(), " has more than 1 GB of pieces");
    written_scores_ = own_written_scores_, scores_ = own_scores_;
    ByteTrie::Keys keys;
    for (TokenId id = 0; id < vocabulary_.size(); ++id)
      keys.emplace_back(vocabulary_.piece(id), vocabulary_.find(vocabulary_.piece(id)));
    trie_ = ByteTrie(std::move(keys));
  }

  TokenId byte_id(char byte) const { return byte_ids_[static_cast<unsigned char>(byte)]; }
  void emit(std::string_view word, uint32_t begin, uint32_t end, TokenId id, std::vector<ModelToken>& tokens) const {
    const std::string_view part = word.substr(begin, end - begin);
    if (id == unknown_ && byte_fallback_ && vocabulary_.find(part) < 0 &&
        std::ranges::all_of(part, [&](char c) { return byte_id(c) >= 0; })) {
      for (size_t i = 0; i < part.size(); ++i)
        tokens.push_back({byte_id(part[i]), static_cast<uint32_t>(begin + i + 1)});
      return;
    }
    if (id >= 0) tokens.push_back({id, end});
  }

  std::vector<double> own_written_scores_, own_scores_;
  std::span<const double> written_scores_, scores_;  // as the file has them, and as they are used
  TokenId unknown_ = -1;
  bool byte_fallback_;
  double unknown_score_ = 0;
  TokenId byte_ids_[256];
  ByteTrie trie_;
};

}  // namespace

std::unique_ptr<SubwordModel> read_unigram(const JsonObject& json, const TokenizerTables* tables) {
  return std::make_unique<UnigramModel>(json, tables);
}

}  // namespace linnet
