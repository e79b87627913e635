#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include "base/fail.h"
#include "data/text/sentencepiece/sentencepiece_normalizer.h"
#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "data/text/unicode/utf8.h"

namespace linnet {

using File = SentencePieceModelFile;

SentencePieceModel::SentencePieceModel(const File& file, const std::string& path) : file_(file) {
  for (const File::Piece& piece : file.pieces) {
    const TokenId id = vocabulary_.size();
    if (!vocabulary_.add(piece.text, id)) fail_user("'", path, "' has too many pieces");
    if (piece.type == File::kUnknown) unknown_ = id;
    std::string_view rest = piece.text;
    while (rest.starts_with(kSpaceSymbol)) rest.remove_prefix(kSpaceSymbol.size());
    if (rest.find(kSpaceSymbol) != std::string_view::npos) has_words_ = false;
  }
}

void SentencePieceModel::tokenize(SentencePieceScratch& scratch) const {
  const std::string_view text = scratch.text;
  scratch.tokens.clear();
  scratch.sum = 0;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = begin;
    while (has_words_ && text.substr(end).starts_with(kSpaceSymbol)) end += kSpaceSymbol.size();
    end = has_words_ ? std::min(text.find(kSpaceSymbol, end), text.size()) : text.size();
    scratch.word.clear();
    cut(text.substr(begin, end - begin), scratch);
    for (const ModelToken& token : scratch.word)
      scratch.tokens.push_back({token.id, static_cast<uint32_t>(begin) + token.end});
  }
}

namespace {

constexpr float kUnknownPenalty = 10;  // below the lowest score
// Of a word of 28 bytes or less: when its best way is better than any other by this much, it is so wherever the word
// stands in a text whose sum of scores stays within kLargestSum, however the 28 sums of fp32 are rounded (each by 2^-8
// at most). Such words need not be looked at twice.
constexpr double kClear = 0.25;
constexpr float kLargestSum = 65000;

// The tokens on the way to the last node.
template <class Nodes>
void append_way(const Nodes& nodes, std::vector<ModelToken>& tokens) {
  for (auto end = static_cast<uint32_t>(nodes.size() - 1); end > 0; end = nodes[end].begin)
    tokens.push_back({nodes[end].id, end});
  std::ranges::reverse(tokens);
}

// The unigram model (Kudo 2018): the way with the largest sum of scores.
class SentencePieceUnigram : public SentencePieceModel {
 public:
  SentencePieceUnigram(const File& file, const std::string& path) : SentencePieceModel(file, path) {
    if (file.pieces.size() >= ByteTrie::kNoValue) fail_user("'", path, "' has too many pieces");
    float lowest = FLT_MAX, highest = 0;
    ByteTrie::Keys keys;
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      const File::Piece& piece = file.pieces[static_cast<size_t>(id)];
      const bool user_defined = piece.type == File::kUserDefined, normal = piece.type == File::kNormal;
      // A user-defined piece wins against any way that has no other of them; by how much shows in sums that are nearly
      // equal later in the line. As sentencepiece 0.2.3 has it, in fp64.
      const double own_score = 0.1 * static_cast<double>(piece.text.size()) - 0.1;
      scores_.push_back(user_defined ? static_cast<float>(own_score) : piece.score);
      if (normal) lowest = std::min(lowest, piece.score), highest = std::max(highest, piece.score);
      if (user_defined || normal) keys.emplace_back(vocabulary_.piece(id), id);
    }
    has_clear_words_ = highest < 100;  // logarithms of probabilities are negative: a part of a sum is less than the sum
    unknown_score_ = (lowest == FLT_MAX ? 0 : lowest) - kUnknownPenalty;
    trie_ = ByteTrie(std::move(keys));
  }

 private:
  void cut(std::string_view word, SentencePieceScratch& scratch) const override {
    if (word.size() > WordCache::kBytes || !has_clear_words_ || std::fabs(scratch.sum) > kLargestSum) {
      best_way(word, scratch);
    } else if (const uint64_t hash = hash_piece(word); !scratch.cache.find(word, hash, scratch.word)) {
      if (clear_way(word, scratch)) scratch.cache.keep(word, hash, scratch.word);
      else best_way(word, scratch);
    }
    for (const ModelToken& token : scratch.word) scratch.sum += score_of(token.id);
  }

  // Viterbi over the places of the word, in fp32 from the sum of what is before it.
  void best_way(std::string_view word, SentencePieceScratch& scratch) const {
    constexpr uint32_t kNowhere = UINT32_MAX;
    auto& nodes = scratch.nodes;
    nodes.assign(word.size() + 1, {0, kNowhere, -1});
    nodes[0].score = scratch.sum;
    trie_.visit_keys(word, [&](size_t begin, size_t end, TokenId id) {
      const float score = score_of(id) + nodes[begin].score;
      SentencePieceScratch::Node& node = nodes[end];
      if (node.begin == kNowhere || score > node.score)
        node = {score, static_cast<uint32_t>(begin), id < 0 ? unknown_ : id};
    });
    append_way(nodes, scratch.word);
  }

  // The same in fp64, with the second best way; false when that is close.
  bool clear_way(std::string_view word, SentencePieceScratch& scratch) const {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    auto& nodes = scratch.two_best;
    nodes.assign(word.size() + 1, {kNone, kNone, 0, -1});
    nodes[0].best = 0;
    trie_.visit_keys(word, [&](size_t begin, size_t end, TokenId id) {
      const auto score = static_cast<double>(score_of(id));
      SentencePieceScratch::TwoBest& node = nodes[end];
      const double best = nodes[begin].best + score, second = nodes[begin].second + score;
      if (best > node.best)
        node = {best, std::max(node.best, second), static_cast<uint32_t>(begin), id < 0 ? unknown_ : id};
      else node.second = std::max(node.second, best);
    });
    if (!(nodes.back().best - nodes.back().second > kClear) || !(std::fabs(nodes.back().best) < 1e4)) return false;
    append_way(nodes, scratch.word);
    return true;
  }

  float score_of(TokenId id) const {
    return id < 0 || id == unknown_ ? unknown_score_ : scores_[static_cast<size_t>(id)];
  }

  ByteTrie trie_;
  std::vector<float> scores_;
  float unknown_score_ = 0;
  bool has_clear_words_ = true;
};

// Byte-pair encoding (Sennrich and others 2016): of the pairs of neighbors that make a piece the one with the largest
// score is joined first.
class SentencePieceBpe : public SentencePieceModel {
 public:
  SentencePieceBpe(const File& file, const ByteTrie* user_defined, const std::string& path)
      : SentencePieceModel(file, path), user_defined_(user_defined) {
    for (const File::Piece& piece : file.pieces) {
      unused_.push_back(piece.type == File::kUnused);
      joinable_.push_back(piece.type == File::kNormal || piece.type == File::kUserDefined || unused_.back());
      any_unused_ = any_unused_ || unused_.back();
    }
    // An unused piece is cut the way that was looked at last, which may have been in another word.
    if (any_unused_) has_words_ = false;
  }

 private:
  // Up to here a word's best pair is found by looking at all of them; a heap pays for itself later.
  static constexpr size_t kFew = 40;

  void cut(std::string_view word, SentencePieceScratch& scratch) const override {
    const bool is_kept = word.size() <= WordCache::kBytes && !any_unused_;
    const uint64_t hash = is_kept ? hash_piece(word) : 0;
    if (is_kept && scratch.cache.find(word, hash, scratch.word)) return;
    split(word, scratch);
    if (scratch.symbols.size() <= kFew && !any_unused_) join_few(word, scratch);
    else join_many(word, scratch);
    if (is_kept) scratch.cache.keep(word, hash, scratch.word);
  }

  // The word's characters, and user-defined pieces whole, as the first symbols.
  void split(std::string_view word, SentencePieceScratch& scratch) const {
    auto& symbols = scratch.symbols;
    symbols.clear();
    for (size_t begin = 0; begin < word.size();) {
      const size_t own = user_defined_ ? user_defined_->longest_prefix(word.substr(begin)) : 0;
      const size_t size = own > 0 ? own : utf8_length_at(word, begin);
      const auto index = static_cast<int32_t>(symbols.size());
      symbols.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(size), index - 1, index + 1, own > 0});
      begin += size;
    }
    symbols.back().next = -1;
  }

  void join_few(std::string_view word, SentencePieceScratch& scratch) const {
    auto* symbols = scratch.symbols.data();
    size_t count = scratch.symbols.size();
    TokenId pairs[kFew];  // pairs[i]: what symbols i and i + 1 make
    float scores[kFew];
    const auto consider = [&](size_t i) {
      pairs[i] = symbols[i].frozen || symbols[i + 1].frozen
                     ? -1
                     : joined(word.substr(symbols[i].begin, symbols[i].size + symbols[i + 1].size));
      if (pairs[i] >= 0) scores[i] = file_.pieces[static_cast<size_t>(pairs[i])].score;
    };
    for (size_t i = 0; i + 1 < count; ++i) consider(i);
    while (count > 1) {
      size_t best = count;
      for (size_t i = 0; i + 1 < count; ++i)
        if (pairs[i] >= 0 && (best == count || scores[i] > scores[best])) best = i;
      if (best == count) break;
      symbols[best].size += symbols[best + 1].size;
      --count;
      for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
      for (size_t i = best + 1; i + 1 < count; ++i) {
        pairs[i] = pairs[i + 1];
        scores[i] = scores[i + 1];
      }
      if (best + 1 < count) consider(best);
      if (best > 0) consider(best - 1);
    }
    for (size_t i = 0; i < count; ++i) finish(word, symbols[i].begin, symbols[i].size, scratch);
  }

  void join_many(std::string_view word, SentencePieceScratch& scratch) const {
    auto& symbols = scratch.symbols;
    auto& pairs = scratch.pairs;
    pairs.clear();
    scratch.splits.clear();
    const auto symbol = [&](int32_t i) -> SentencePieceScratch::Symbol& { return symbols[static_cast<size_t>(i)]; };
    const auto consider = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0 || symbol(left).frozen || symbol(right).frozen) return false;
      const uint32_t size = symbol(left).size + symbol(right).size;
      const std::string_view text = word.substr(symbol(left).begin, size);
      const TokenId id = joined(text);
      if (id < 0) return false;
      pairs.push_back({file_.pieces[static_cast<size_t>(id)].score, static_cast<uint32_t>(left),
                       static_cast<uint32_t>(right), size});
      if (unused_[static_cast<size_t>(id)]) scratch.splits[text] = symbol(left).size;
      return true;
    };
    for (size_t i = 1; i < symbols.size(); ++i) consider(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    std::make_heap(pairs.begin(), pairs.end());
    while (!pairs.empty()) {
      std::pop_heap(pairs.begin(), pairs.end());
      const SentencePieceScratch::Pair pair = pairs.back();
      pairs.pop_back();
      const auto location = static_cast<int32_t>(pair.left), other = static_cast<int32_t>(pair.right);
      // One of the two has changed since; a size of 0 is a symbol that went into another.
      if (symbol(location).size == 0 || symbol(other).size == 0 ||
          symbol(location).size + symbol(other).size != pair.size)
        continue;
      symbol(location).size = pair.size;
      symbol(location).next = symbol(other).next;
      if (symbol(other).next >= 0) symbol(symbol(other).next).previous = location;
      symbol(other).size = 0;
      if (consider(symbol(location).previous, location)) std::push_heap(pairs.begin(), pairs.end());
      if (consider(location, symbol(location).next)) std::push_heap(pairs.begin(), pairs.end());
    }
    for (int32_t i = 0; i >= 0; i = symbol(i).next) finish(word, symbol(i).begin, symbol(i).size, scratch);
  }

  // The token of a symbol; one that is not to be used is cut as it was joined. Control pieces are not read from text.
  void finish(std::string_view word, uint32_t begin, uint32_t size, SentencePieceScratch& scratch) const {
    TokenId id = joined(word.substr(begin, size));
    if (id >= 0 && unused_[static_cast<size_t>(id)]) {
      if (const auto found = scratch.splits.find(word.substr(begin, size)); found != scratch.splits.end()) {
        const uint32_t left = found->second;
        finish(word, begin, left, scratch);
        finish(word, begin + left, size - left, scratch);
        return;
      }
      id = -1;
    }
    scratch.word.push_back({id < 0 ? unknown_ : id, begin + size});
  }

  // The piece that text can be joined to, or -1.
  TokenId joined(std::string_view text) const {
    const TokenId id = vocabulary_.find(text);
    return id >= 0 && joinable_[static_cast<size_t>(id)] ? id : -1;
  }

  const ByteTrie* user_defined_;
  std::vector<bool> joinable_, unused_;
  bool any_unused_ = false;
};

}  // namespace

std::unique_ptr<SentencePieceModel> make_sentencepiece_model(const File& file, const ByteTrie* user_defined,
                                                             const std::string& path) {
  if (file.model_type == 1) return std::make_unique<SentencePieceUnigram>(file, path);
  return std::make_unique<SentencePieceBpe>(file, user_defined, path);
}

}  // namespace linnet
