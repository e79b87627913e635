#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include "base/fail.h"
#include "base/numbers.h"
#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
// A unit of the trie in darts-clone's layout: bit 31 marks a value, bit 8 a leaf, bits 10 up (times 256 if bit 9 is
// set) give the offset of the children, the lowest 8 bits are the byte that leads here.
bool has_leaf(uint32_t unit) { return (unit >> 8) & 1; }
uint32_t unit_value(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
}  // namespace

CharsmapTable::CharsmapTable(std::string_view table, const std::string& where) {
  if (table.size() < sizeof(uint32_t)) fail_user(where, " has a damaged table of replacements (too short)");
  const auto bytes = number_at<uint32_t>(table.data());
  table.remove_prefix(sizeof bytes);
  if (bytes % sizeof(uint32_t) != 0 || bytes == 0 || bytes >= table.size())
    fail_user(where, " has a damaged table of replacements (its trie's size)");
  units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), table.data(), bytes);
  texts_ = table.substr(bytes);
  texts_ += '\0';
  if (invalid_utf8_at(texts_) != std::string::npos) fail_user(where, " has replacements that are not UTF-8");
}

// Common-prefix search; every step is checked against the table's ends.
CharsmapTable::Entry CharsmapTable::find(std::string_view text, bool first) const {
  Entry entry;
  if (units_.empty()) return entry;
  size_t location = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    location ^= byte;
    if (location >= units_.size() || label_of(units_[location]) != byte) break;
    const uint32_t unit = units_[location];
    location ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (location >= units_.size() || unit_value(units_[location]) >= texts_.size()) break;
    entry = {texts_.data() + unit_value(units_[location]), i + 1};
    if (first) break;
  }
  return entry;
}

bool CharsmapTable::begins_ascii(unsigned char byte) const {
  if (units_.empty()) return false;
  size_t location = offset_of(units_[0]) ^ byte;
  if (location >= units_.size() || label_of(units_[location]) != byte) return false;
  if (has_leaf(units_[location])) return true;
  location ^= offset_of(units_[location]);
  for (size_t next = 0; next < 0x80; ++next)
    if ((location ^ next) < units_.size() && label_of(units_[location ^ next]) == next) return true;
  return false;
}

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceModelFile::Normalization& spec,
    bool space_as_suffix, const ByteTrie* user_defined, const std::string& path)
    : user_defined_(user_defined), dummy_prefix_(spec.dummy_prefix), remove_extra_(spec.remove_extra_spaces),
      escape_(spec.escape_spaces), suffix_(space_as_suffix) {
  if (!spec.charsmap.empty()) table_ = CharsmapTable(spec.charsmap, "'" + path + "'");
  for (size_t c = 0; c < 128; ++c) {
    const auto byte = static_cast<unsigned char>(c);
    const bool begins_user_defined = user_defined && user_defined->next(ByteTrie::kRoot, byte) != ByteTrie::kNowhere;
    plain_[c] = !begins_user_defined && !table_.begins_ascii(byte);
  }
}

bool SentencePieceNormalizer::is_plain(std::string_view text, size_t at) const {
  return plain_[static_cast<unsigned char>(text[at])] && (at + 1 == text.size() || is_ascii(text[at + 1]));
}

SentencePieceNormalizer::Prefix SentencePieceNormalizer::prefix_of(std::string_view text) const {
  if (is_plain(text, 0)) return {text.substr(0, 1), 1};
  if (user_defined_)
    if (const size_t length = user_defined_->longest_prefix(text); length > 0) return {text.substr(0, length), length};
  if (const CharsmapTable::Entry entry = table_.longest(text); entry.text) return {entry.text, entry.length};
  const size_t length = utf8_length_at(text, 0);
  if (length == 1 && !is_ascii(text[0])) return {kReplacementCharacter, 1};
  return {text.substr(0, length), length};
}

void SentencePieceNormalizer::apply(std::string_view text, std::string& out, std::vector<size_t>* sources) const {
  out.clear();
  if (sources) sources->clear();
  size_t at = 0;
  while (remove_extra_ && at < text.size()) {
    const Prefix prefix = prefix_of(text.substr(at));
    if (prefix.text != " ") break;
    at += prefix.length;
  }
  if (at == text.size()) return;
  const auto put = [&](std::string_view bytes) {
    out += bytes;
    if (sources) sources->insert(sources->end(), bytes.size(), at);
  };
  const std::string_view space = escape_ ? kSpaceSymbol : std::string_view(" ");
  if (!suffix_ && dummy_prefix_) put(space);
  bool after_space = remove_extra_;  // where further spaces are left out
  while (at < text.size()) {
    // Fast path: most text is unchanged letters.
    size_t end = at;
    while (end < text.size() && text[end] != ' ' && is_plain(text, end)) ++end;
    if (end > at) {
      out += text.substr(at, end - at);
      if (sources)
        for (size_t i = at; i < end; ++i) sources->push_back(i);
      at = end;
      after_space = false;
      continue;
    }
    const Prefix prefix = prefix_of(text.substr(at));
    std::string_view bytes = prefix.text;
    if (after_space)
      while (bytes.starts_with(' ')) bytes.remove_prefix(1);
    if (!bytes.empty()) {
      after_space = bytes.ends_with(' ');
      for (size_t begin = 0; begin < bytes.size();) {
        const size_t blank = escape_ ? std::min(bytes.find(' ', begin), bytes.size()) : bytes.size();
        put(bytes.substr(begin, blank - begin));
        if (blank < bytes.size()) put(kSpaceSymbol);
        begin = blank + 1;
      }
    }
    if (!remove_extra_) after_space = false;
    at += prefix.length;
  }
  // Drops the spaces at the end.
  while (remove_extra_ && std::string_view(out).ends_with(space)) {
    out.resize(out.size() - space.size());
    if (sources) at = (*sources)[out.size()], sources->resize(out.size());
  }
  if (suffix_ && dummy_prefix_) put(space);
  if (sources) sources->push_back(at);
}

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
// For a word of up to 28 bytes whose best segmentation leads by this much: it is also the best wherever the word stands
// in a text whose sum of scores stays within kLargestSum, however the 28 sums of fp32 are rounded (each by 2^-8 at
// most). Such words are segmented once.
constexpr double kClear = 0.25;
constexpr float kLargestSum = 65000;

// The unigram model: the segmentation with the largest sum of scores.
class SentencePieceUnigram : public SentencePieceModel {
 public:
  SentencePieceUnigram(const File& file, const std::string& path) : SentencePieceModel(file, path) {
    if (file.pieces.size() >= ByteTrie::kNoValue) fail_user("'", path, "' has too many pieces");
    float lowest = FLT_MAX, highest = 0;
    ByteTrie::Keys keys;
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      const File::Piece& piece = file.pieces[id];
      const bool user_defined = piece.type == File::kUserDefined, normal = piece.type == File::kNormal;
      // A user-defined piece wins against any segmentation with none other; the margin shows in nearly equal sums later
      // in the line. In fp64, as in sentencepiece 0.2.3.
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

  // In fp32 from the sum of what precedes it.
  void best_way(std::string_view word, SentencePieceScratch& scratch) const {
    const auto score = [&](TokenId id) { return score_of(id); };
    append_best_way(trie_, word, scratch.sum, unknown_, score, scratch.nodes, scratch.word);
  }

  // The same in fp64, with the runner-up; false if that is close.
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

  float score_of(TokenId id) const { return id < 0 || id == unknown_ ? unknown_score_ : scores_[id]; }

  ByteTrie trie_;
  std::vector<float> scores_;
  float unknown_score_ = 0;
  bool has_clear_words_ = true;
};

// Byte-pair encoding: joins the pair of neighbors whose piece has the largest score first.
class SentencePieceBpe : public SentencePieceModel {
 public:
  SentencePieceBpe(const File& file, const ByteTrie* user_defined, const std::string& path)
      : SentencePieceModel(file, path), user_defined_(user_defined) {
    for (const File::Piece& piece : file.pieces) {
      unused_.push_back(piece.type == File::kUnused);
      joinable_.push_back(piece.type == File::kNormal || piece.type == File::kUserDefined || unused_.back());
      any_unused_ = any_unused_ || unused_.back();
    }
    // An unused piece is cut the way that was looked at last, perhaps in another word.
    if (any_unused_) has_words_ = false;
  }

 private:
  using Merger = PairMerger<float>;
  static constexpr TokenId kPlain = -1, kFrozen = -2;  // symbols as they stand in the text; frozen ones stay so

  void cut(std::string_view word, SentencePieceScratch& scratch) const override {
    const bool is_kept = word.size() <= WordCache::kBytes && !any_unused_;
    const uint64_t hash = is_kept ? hash_piece(word) : 0;
    if (is_kept && scratch.cache.find(word, hash, scratch.word)) return;
    split(word, scratch);
    std::vector<ModelToken>& symbols = scratch.symbols;
    const auto join = [&](uint32_t begin, const ModelToken& left, const ModelToken& right) -> Merger::Joined {
      if (left.id == kFrozen || right.id == kFrozen) return Merger::kApart;
      const std::string_view text = word.substr(begin, right.end - begin);
      const TokenId id = joined(text);
      if (id < 0) return Merger::kApart;
      if (unused_[id]) scratch.splits[text] = left.end - begin;
      return {-file_.pieces[id].score, id};
    };
    if (symbols.size() <= Merger::kFew && !any_unused_) Merger::merge_few(symbols, 0, join);
    else scratch.splits.clear(), scratch.merger.merge_many(symbols, 0, join);
    uint32_t begin = 0;
    for (const ModelToken& symbol : symbols) finish(word, std::exchange(begin, symbol.end), symbol.end, scratch);
    if (is_kept) scratch.cache.keep(word, hash, scratch.word);
  }

  // The first symbols: the word's characters, and user-defined pieces whole.
  void split(std::string_view word, SentencePieceScratch& scratch) const {
    scratch.symbols.clear();
    for (size_t begin = 0; begin < word.size();) {
      const size_t own = user_defined_ ? user_defined_->longest_prefix(word.substr(begin)) : 0;
      begin += own > 0 ? own : utf8_length_at(word, begin);
      scratch.symbols.push_back({own > 0 ? kFrozen : kPlain, static_cast<uint32_t>(begin)});
    }
  }

  // The token of a symbol; an unused one is cut as it was joined. Text never gives control pieces.
  void finish(std::string_view word, uint32_t begin, uint32_t end, SentencePieceScratch& scratch) const {
    const std::string_view text = word.substr(begin, end - begin);
    TokenId id = joined(text);
    if (id >= 0 && unused_[id]) {
      if (const auto found = scratch.splits.find(text); found != scratch.splits.end()) {
        const uint32_t middle = begin + found->second;
        finish(word, begin, middle, scratch);
        return finish(word, middle, end, scratch);
      }
      id = -1;
    }
    scratch.word.push_back({id < 0 ? unknown_ : id, end});
  }

  // The piece that text can be joined to, or -1.
  TokenId joined(std::string_view text) const {
    const TokenId id = vocabulary_.find(text);
    return id >= 0 && joinable_[id] ? id : -1;
  }

  const ByteTrie* user_defined_;
  std::vector<bool> joinable_, unused_;
  bool any_unused_ = false;
};
}  // namespace

std::unique_ptr<SentencePieceModel> make_sentencepiece_model(
    const File& file, const ByteTrie* user_defined, const std::string& path) {
  if (file.model_type == 1) return std::make_unique<SentencePieceUnigram>(file, path);
  return std::make_unique<SentencePieceBpe>(file, user_defined, path);
}
}  // namespace linnet
