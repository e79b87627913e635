#include <algorithm>
#include "data/text/sentencepiece/sentencepiece_model.h"
#include "data/text/sentencepiece/sentencepiece_normalizer.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

// Up to here a word's best pair is found by looking at all of them; a heap pays for itself later.
constexpr size_t kFew = 40;

}  // namespace

SentencePieceBpe::SentencePieceBpe(const SentencePieceModelFile& file, const ByteTrie* user_defined,
                                   const std::string& path)
    : SentencePieceModel(file, path), user_defined_(user_defined) {
  using File = SentencePieceModelFile;
  for (const File::Piece& piece : file.pieces) {
    unused_.push_back(piece.type == File::kUnused);
    joinable_.push_back(piece.type == File::kNormal || piece.type == File::kUserDefined || unused_.back());
    any_unused_ = any_unused_ || unused_.back();
  }
  // An unused piece is cut the way that was looked at last, which may have been in another word.
  if (any_unused_) has_words_ = false;
}

void SentencePieceBpe::tokenize(SentencePieceScratch& scratch) const {
  const std::string_view text = scratch.text;
  scratch.tokens.clear();
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = word_end(text, begin);
    const std::string_view word = text.substr(begin, end - begin);
    scratch.word.clear();
    const uint64_t hash = word.size() <= WordCache::kBytes ? hash_piece(word) : 0;
    if (word.size() > WordCache::kBytes || any_unused_ || !scratch.cache.find(word, hash, scratch.word)) {
      split(word, scratch);
      if (scratch.symbols.size() <= kFew && !any_unused_) join_few(word, scratch);
      else join_many(word, scratch);
      if (word.size() <= WordCache::kBytes && !any_unused_)
        scratch.cache.keep(word, hash, scratch.word.data(), scratch.word.size());
    }
    for (const ModelToken& token : scratch.word)
      scratch.tokens.push_back({token.id, static_cast<uint32_t>(begin) + token.end});
  }
}

// The word's characters, and user-defined pieces whole, as the first symbols.
void SentencePieceBpe::split(std::string_view word, SentencePieceScratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  for (size_t begin = 0; begin < word.size();) {
    const size_t own = user_defined_ ? longest_match(*user_defined_, word.substr(begin)) : 0;
    const size_t size = own > 0 ? own : utf8_length_at(word, begin);
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(size), index - 1, index + 1, own > 0});
    begin += size;
  }
  symbols.back().next = -1;
}

void SentencePieceBpe::join_few(std::string_view word, SentencePieceScratch& scratch) const {
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

void SentencePieceBpe::join_many(std::string_view word, SentencePieceScratch& scratch) const {
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
    pairs.push_back(
        {file_.pieces[static_cast<size_t>(id)].score, static_cast<uint32_t>(left), static_cast<uint32_t>(right), size});
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
void SentencePieceBpe::finish(std::string_view word, uint32_t begin, uint32_t size,
                              SentencePieceScratch& scratch) const {
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

}  // namespace linnet
