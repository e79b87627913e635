#include "data/text/sentencepiece/unigram_model.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include "base/error.h"
#include "data/text/pipeline/tokenizer_tables.h"
#include "data/text/unicode/utf8.h"

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

}  // namespace

UnigramModel::UnigramModel(Vocabulary vocabulary, std::vector<double> scores, TokenId unknown, bool byte_fallback,
                           const std::string& where)
    : own_written_scores_(std::move(scores)), unknown_(unknown), byte_fallback_(byte_fallback) {
  vocabulary_ = std::move(vocabulary);
  own_scores_.reserve(own_written_scores_.size());
  for (const double score : own_written_scores_)
    own_scores_.push_back(std::isfinite(score) ? as_tokenizers_reads(score) : score);
  written_scores_ = own_written_scores_, scores_ = own_scores_;
  size_t bytes = 0;
  for (TokenId id = 0; id < vocabulary_.size(); ++id) bytes += vocabulary_.piece(id).size();
  if (bytes >= kMostBytes) fail_user(where + " has more than 1 GB of pieces");
  ByteTrie::Keys keys;
  for (TokenId id = 0; id < vocabulary_.size(); ++id)
    if (vocabulary_.has(id)) keys.emplace_back(vocabulary_.piece(id), vocabulary_.find(vocabulary_.piece(id)));
  trie_ = ByteTrie(std::move(keys));
  finish(where);
}

UnigramModel::UnigramModel(const TokenizerTables& tables, TokenId unknown, bool byte_fallback)
    : written_scores_(tables.table<double>(TokenizerTable::kWrittenScores)),
      scores_(tables.table<double>(TokenizerTable::kScores)),
      unknown_(unknown),
      byte_fallback_(byte_fallback) {
  vocabulary_ = tables.vocabulary();
  const auto pieces = static_cast<size_t>(vocabulary_.size());
  if (scores_.size() != pieces || written_scores_.size() != pieces)
    tables.fail("its scores are not those of its pieces");
  trie_ = ByteTrie(tables.table<ByteTrie::Unit>(TokenizerTable::kTrie), vocabulary_.size(), tables.where());
  finish(tables.where());
  keep(tables.owner());
}

void UnigramModel::finish(const std::string& where) {
  if (unknown_ >= vocabulary_.size()) fail_user(where + " has an unknown token outside its vocabulary");
  for (const double score : scores_)
    if (!std::isfinite(score)) fail_user(where + " has a score that is not finite");
  unknown_score_ = (scores_.empty() ? 0 : *std::ranges::min_element(scores_)) - kUnknownTokenPenalty;
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    byte_ids_[byte] = vocabulary_.find(text);
  }
}

// Viterbi over the locations of the word. Equal scores: the way that was found first, which has the longer last piece.
void UnigramModel::tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const {
  constexpr uint32_t kNowhere = UINT32_MAX;
  auto& nodes = scratch.nodes;
  nodes.assign(word.size() + 1, {0, kNowhere, -1});
  const auto reach = [&](size_t end, double score, size_t begin, TokenId id) {
    ModelScratch::Node& node = nodes[end];
    if (node.begin == kNowhere || score > node.score) node = {score, static_cast<uint32_t>(begin), id};
  };
  for (size_t begin = 0; begin < word.size();) {
    const size_t length = utf8_length_at(word, begin);
    const double here = nodes[begin].score;
    bool single = false;  // the character by itself is a piece
    trie_.visit_prefixes(word.substr(begin), [&](size_t bytes, TokenId id) {
      reach(begin + bytes, here + scores_[static_cast<size_t>(id)], begin, id);
      single = single || bytes == length;
    });
    if (!single) reach(begin + length, here + unknown_score_, begin, unknown_);
    begin += length;
  }
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

void UnigramModel::emit(std::string_view word, uint32_t begin, uint32_t end, TokenId id,
                        std::vector<ModelToken>& tokens) const {
  const std::string_view part = word.substr(begin, end - begin);
  if (id == unknown_ && byte_fallback_ && vocabulary_.find(part) < 0 &&
      std::all_of(part.begin(), part.end(), [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; })) {
    for (size_t i = 0; i < part.size(); ++i)
      tokens.push_back({byte_ids_[static_cast<unsigned char>(part[i])], static_cast<uint32_t>(begin + i + 1)});
    return;
  }
  if (id >= 0) tokens.push_back({id, end});
}

}  // namespace linnet
