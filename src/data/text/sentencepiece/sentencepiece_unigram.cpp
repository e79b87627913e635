#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include "base/error.h"
#include "data/text/sentencepiece/sentencepiece_model.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

constexpr float kUnknownPenalty = 10;  // below the lowest score
// Of a word of 28 bytes or less: when its best way is better than any other by this much, it is so wherever the word
// stands in a text whose sum of scores stays within kLargestSum, however the 28 sums of fp32 are rounded (each by 2^-8
// at most). Such words need not be looked at twice.
constexpr double kClear = 0.25;
constexpr float kLargestSum = 65000;

}  // namespace

SentencePieceUnigram::SentencePieceUnigram(const SentencePieceModelFile& file, const std::string& path)
    : SentencePieceModel(file, path) {
  using File = SentencePieceModelFile;
  if (file.pieces.size() >= ByteTrie::kNoValue) fail_user("'" + path + "' has too many pieces");
  float lowest = FLT_MAX, highest = 0;
  for (const File::Piece& piece : file.pieces) {
    if (piece.type != File::kNormal) continue;
    lowest = std::min(lowest, piece.score);
    highest = std::max(highest, piece.score);
  }
  has_clear_words_ = highest < 100;  // logarithms of probabilities are negative: a part of a sum is less than the sum
  unknown_score_ = (lowest == FLT_MAX ? 0 : lowest) - kUnknownPenalty;
  ByteTrie::Keys keys;
  for (TokenId id = 0; id < vocabulary_.size(); ++id) {
    const File::Piece& piece = file.pieces[static_cast<size_t>(id)];
    // A user-defined piece wins against any way that has no other of them; by how much shows in sums that are nearly
    // equal later in the line. As sentencepiece 0.2.3 has it, in fp64.
    const bool user_defined = piece.type == File::kUserDefined;
    const double own_score = 0.1 * static_cast<double>(piece.text.size()) - 0.1;
    scores_.push_back(user_defined ? static_cast<float>(own_score) : piece.score);
    if (user_defined || piece.type == File::kNormal) keys.emplace_back(vocabulary_.piece(id), id);
  }
  trie_ = ByteTrie(std::move(keys));
}

void SentencePieceUnigram::tokenize(SentencePieceScratch& scratch) const {
  const std::string_view text = scratch.text;
  scratch.tokens.clear();
  float sum = 0;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = word_end(text, begin);
    const std::string_view word = text.substr(begin, end - begin);
    scratch.word.clear();
    if (word.size() > WordCache::kBytes || !has_clear_words_ || std::fabs(sum) > kLargestSum) {
      best_way(word, sum, scratch);
    } else if (const uint64_t hash = hash_piece(word); !scratch.cache.find(word, hash, scratch.word)) {
      if (clear_way(word, scratch)) scratch.cache.keep(word, hash, scratch.word.data(), scratch.word.size());
      else best_way(word, sum, scratch);
    }
    for (const ModelToken& token : scratch.word) {
      sum += score_of(token.id);
      scratch.tokens.push_back({token.id, static_cast<uint32_t>(begin) + token.end});
    }
  }
}

// Viterbi over the places of the word, in fp32 from the sum of what is before it.
void SentencePieceUnigram::best_way(std::string_view word, float before, SentencePieceScratch& scratch) const {
  constexpr uint32_t kNowhere = UINT32_MAX;
  auto& nodes = scratch.nodes;
  nodes.assign(word.size() + 1, {0, kNowhere, -1});
  nodes[0].score = before;
  const auto reach = [&](size_t end, float score, size_t begin, TokenId id) {
    SentencePieceScratch::Node& node = nodes[end];
    if (node.begin == kNowhere || score > node.score) node = {score, static_cast<uint32_t>(begin), id};
  };
  for (size_t begin = 0; begin < word.size();) {
    const size_t length = utf8_length_at(word, begin);
    const float here = nodes[begin].score;
    bool single = false;  // the character by itself is a piece
    trie_.visit_prefixes(word.substr(begin), [&](size_t bytes, TokenId id) {
      reach(begin + bytes, scores_[static_cast<size_t>(id)] + here, begin, id);
      single = single || bytes == length;
    });
    if (!single) reach(begin + length, unknown_score_ + here, begin, unknown_);
    begin += length;
  }
  for (auto end = static_cast<uint32_t>(word.size()); end > 0; end = nodes[end].begin)
    scratch.word.push_back({nodes[end].id, end});
  std::reverse(scratch.word.begin(), scratch.word.end());
}

// The same in fp64, with the second best way; false when that is close.
bool SentencePieceUnigram::clear_way(std::string_view word, SentencePieceScratch& scratch) const {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  auto& nodes = scratch.two_best;
  nodes.assign(word.size() + 1, {kNone, kNone, 0, -1});
  nodes[0].best = 0;
  const auto reach = [&](size_t begin, size_t end, double score, TokenId id) {
    SentencePieceScratch::TwoBest& node = nodes[end];
    const double best = nodes[begin].best + score, second = nodes[begin].second + score;
    if (best > node.best) node = {best, std::max(node.best, second), static_cast<uint32_t>(begin), id};
    else node.second = std::max(node.second, best);
  };
  for (size_t begin = 0; begin < word.size();) {
    const size_t length = utf8_length_at(word, begin);
    bool single = false;
    trie_.visit_prefixes(word.substr(begin), [&](size_t bytes, TokenId id) {
      reach(begin, begin + bytes, static_cast<double>(scores_[static_cast<size_t>(id)]), id);
      single = single || bytes == length;
    });
    if (!single) reach(begin, begin + length, static_cast<double>(unknown_score_), unknown_);
    begin += length;
  }
  if (!(nodes.back().best - nodes.back().second > kClear) || !(std::fabs(nodes.back().best) < 1e4)) return false;
  for (auto end = static_cast<uint32_t>(word.size()); end > 0; end = nodes[end].begin)
    scratch.word.push_back({nodes[end].id, end});
  std::reverse(scratch.word.begin(), scratch.word.end());
  return true;
}

}  // namespace linnet
