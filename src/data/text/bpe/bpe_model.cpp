// Byte pair encoding (Sennrich, Haddow & Birch 2016): a word's symbols are merged in the order in which the merges were
// learnt, the leftmost first.
#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include "base/fail.h"
#include "data/text/bpe/byte_alphabet.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/pipeline/tokenizer_tables.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

// Up to here a word's lowest pair is found by looking at all of them; a heap pays for itself later.
constexpr size_t kShort = 48;

uint64_t key_of_pair(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// "a b", or ["a", "b"] as newer files have it.
std::pair<std::string, std::string> read_merge(const JsonObject& model, const Json& merge, size_t number) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].text(), merge[1].text()};
  if (!merge.is_string()) model.fail("merge " + std::to_string(number) + " is not two pieces");
  const std::string& text = merge.text();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    model.fail("merge " + std::to_string(number) + " is not two pieces and a space");
  return {text.substr(0, space), text.substr(space + 1)};
}

class BpeModel : public SubwordModel {
 public:
  // Pieces and merges that do not fit are a user error.
  BpeModel(const JsonObject& json, bool byte_level, const TokenizerTables* tables)
      : SubwordModel(json, tables),
        byte_level_(byte_level),
        byte_fallback_(json.flag("byte_fallback", false)),
        fuse_unknown_(json.flag("fuse_unk", false)),
        ignore_merges_(json.flag("ignore_merges", false)),
        unknown_piece_(json.text("unk_token", "")),
        continuing_prefix_(json.text("continuing_subword_prefix", "")),
        word_suffix_(json.text("end_of_word_suffix", "")) {
    if (json.has("dropout") && !(json.at("dropout").is_number() && json.at("dropout").get<double>() == 0))
      json.fail("has a dropout, which Linnet does not do");
    if (!unknown_piece_.empty()) unknown_ = vocabulary_.find(unknown_piece_);
    for (int byte = 0; byte < 256; ++byte)
      byte_ids_[byte] =
          vocabulary_.find(byte_level ? spelt(std::string(1, static_cast<char>(byte))) : byte_piece(byte));
    if (tables) use_tables(*tables);
    else read_merges(json);
  }

  const char* kind() const override { return "bpe"; }
  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const override {
    if (ignore_merges_) {
      std::string_view piece = word;
      if (byte_level_) {
        scratch.text.clear();
        spell_bytes(word, scratch.text);
        piece = scratch.text;
      }
      if (const TokenId id = vocabulary_.find(piece); id >= 0) {
        tokens.push_back({id, static_cast<uint32_t>(word.size())});
        return;
      }
    }
    const size_t begin = tokens.size();
    split(word, tokens, scratch.text);
    if (tokens.size() - begin <= kShort) merge_short(tokens, begin);
    else merge_long(tokens, begin, scratch);
  }

  Json settings() const override {
    const auto text_or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
    return {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", text_or_null(unknown_piece_)},
            {"continuing_subword_prefix", text_or_null(continuing_prefix_)},
            {"end_of_word_suffix", text_or_null(word_suffix_)},
            {"fuse_unk", fuse_unknown_},
            {"byte_fallback", byte_fallback_},
            {"ignore_merges", ignore_merges_}};
  }

  void add_tables(TokenizerTableWriter& tables) const override {
    tables.set(TokenizerTable::kPairs, pairs_);
    tables.set(TokenizerTable::kMerges, merges_);
  }

 private:
  // Of the table of merges: open addressing, where the upper bits of the key times a constant name the slot. Packed
  // models hold it as it is here.
  struct Pair {
    uint64_t key = UINT64_MAX;  // key_of_pair()
    uint32_t rank = UINT32_MAX;
    TokenId merged = -1;  // -1: nothing is here
  };
  static_assert(alignof(Pair) <= kTokenizerTableAlignment && sizeof(Pair) == 16);
  using Merge = std::array<TokenId, 2>;

  size_t slot_of(uint64_t key) const { return (key * 0x9e3779b97f4a7c15u) >> shift_; }
  const Pair* find(TokenId left, TokenId right) const {
    const uint64_t key = key_of_pair(left, right);
    for (size_t slot = slot_of(key);; slot = (slot + 1) & (pairs_.size() - 1)) {
      if (pairs_[slot].key == key) return &pairs_[slot];
      if (pairs_[slot].merged < 0) return nullptr;
    }
  }
  TokenId byte_id(char byte) const { return byte_ids_[static_cast<unsigned char>(byte)]; }
  std::string pieces_json() const override {
    // "a b" where no piece has a space: every version of tokenizers reads that.
    bool spaces = false;
    for (const auto& [left, right] : merges_)
      for (const TokenId id : {left, right})
        spaces = spaces || vocabulary_.piece(id).find(' ') != std::string_view::npos;
    std::string json = SubwordModel::pieces_json() + ",\n\"merges\":[";
    const char* separator = "\n";
    for (const auto& [left, right] : merges_) {
      const std::string l(vocabulary_.piece(left)), r(vocabulary_.piece(right));
      json += std::exchange(separator, ",\n");
      json += spaces ? "[" + quote_json(l) + "," + quote_json(r) + "]" : quote_json(l + " " + r);
    }
    return json + "]";
  }

  void read_merges(const JsonObject& json) {
    const Json& merges = json.list("merges");
    const size_t slots = std::bit_ceil(std::max<size_t>(2 * merges.size(), 16));
    own_pairs_.resize(slots);
    shift_ = 64 - std::countr_zero(slots);
    own_merges_.reserve(merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const auto [left, right] = read_merge(json, merges[rank], rank + 1);
      const size_t prefix = right.starts_with(continuing_prefix_) ? continuing_prefix_.size() : 0;
      const TokenId l = vocabulary_.find(left), r = vocabulary_.find(right),
                    merged = vocabulary_.find(left + right.substr(prefix));
      if (l < 0 || r < 0 || merged < 0)
        fail_user(json.where(), ": merge ", rank + 1, " needs a piece that is not in the vocabulary");
      own_merges_.push_back({l, r});
      // A pair that comes twice has its last rank, as in tokenizers.
      const uint64_t key = key_of_pair(l, r);
      size_t slot = slot_of(key);
      while (own_pairs_[slot].merged >= 0 && own_pairs_[slot].key != key) slot = (slot + 1) & (slots - 1);
      own_pairs_[slot] = {key, static_cast<uint32_t>(rank), merged};
    }
    pairs_ = own_pairs_, merges_ = own_merges_;
  }

  void use_tables(const TokenizerTables& tables) {
    pairs_ = tables.table<Pair>(TokenizerTable::kPairs), merges_ = tables.table<Merge>(TokenizerTable::kMerges);
    if (pairs_.size() < 2 || !std::has_single_bit(pairs_.size())) tables.fail("its pairs are no power of two");
    shift_ = 64 - std::countr_zero(pairs_.size());
    size_t empty = 0;
    for (const Pair& pair : pairs_) {
      const bool is_empty = pair.merged == -1 && pair.key == Pair{}.key;
      empty += is_empty;
      if (!is_empty && !vocabulary_.has(pair.merged)) tables.fail("a pair is merged to an id that has no piece");
    }
    if (empty == 0) tables.fail("all of its pairs are taken");  // a search would not end
    for (const auto& [left, right] : merges_)
      if (!vocabulary_.has(left) || !vocabulary_.has(right)) tables.fail("a merge has an id that has no piece");
  }

  // The word's characters (or bytes) as the first symbols.
  void split(std::string_view word, std::vector<ModelToken>& symbols, std::string& spelling) const {
    bool in_unknown = false;
    const auto unknown = [&](size_t end) {
      if (unknown_ < 0) return;
      if (in_unknown && fuse_unknown_) symbols.back().end = static_cast<uint32_t>(end);
      else symbols.push_back({unknown_, static_cast<uint32_t>(end)});
      in_unknown = true;
    };
    if (byte_level_ && continuing_prefix_.empty() && word_suffix_.empty()) {
      for (size_t i = 0; i < word.size(); ++i) {
        const TokenId id = byte_id(word[i]);
        if (id < 0) {
          unknown(i + 1);
        } else {
          symbols.push_back({id, static_cast<uint32_t>(i + 1)});
          in_unknown = false;
        }
      }
      return;
    }
    for (size_t i = 0; i < word.size();) {
      const size_t length = byte_level_ ? 1 : utf8_length_at(word, i), end = i + length;
      spelling.clear();
      if (i > 0) spelling += continuing_prefix_;
      if (byte_level_) spell_bytes(word.substr(i, length), spelling);
      else spelling += word.substr(i, length);
      if (end == word.size()) spelling += word_suffix_;
      const TokenId id = vocabulary_.find(spelling);
      if (id >= 0) {
        symbols.push_back({id, static_cast<uint32_t>(end)});
        in_unknown = false;
      } else if (byte_fallback_ &&
                 std::ranges::all_of(word.substr(i, length), [&](char c) { return byte_id(c) >= 0; })) {
        for (size_t k = i; k < end; ++k) symbols.push_back({byte_id(word[k]), static_cast<uint32_t>(k + 1)});
        in_unknown = false;
      } else {
        unknown(end);
      }
      i = end;
    }
  }

  void merge_short(std::vector<ModelToken>& symbols, size_t begin) const {
    ModelToken* s = symbols.data() + begin;
    size_t count = symbols.size() - begin;
    const Pair* pairs[kShort];  // pairs[i]: what symbols i and i + 1 merge to
    for (size_t i = 0; i + 1 < count; ++i) pairs[i] = find(s[i].id, s[i + 1].id);
    while (count > 1) {
      size_t best = count;
      uint32_t rank = UINT32_MAX;
      for (size_t i = 0; i + 1 < count; ++i)
        if (pairs[i] && pairs[i]->rank < rank) {
          rank = pairs[i]->rank;
          best = i;
        }
      if (best == count) break;
      s[best] = {pairs[best]->merged, s[best + 1].end};
      --count;
      for (size_t i = best + 1; i < count; ++i) s[i] = s[i + 1];
      for (size_t i = best + 1; i + 1 < count; ++i) pairs[i] = pairs[i + 1];
      if (best + 1 < count) pairs[best] = find(s[best].id, s[best + 1].id);
      if (best > 0) pairs[best - 1] = find(s[best - 1].id, s[best].id);
    }
    symbols.resize(begin + count);
  }

  void merge_long(std::vector<ModelToken>& tokens, size_t begin, ModelScratch& scratch) const {
    auto& symbols = scratch.symbols;
    auto& heap = scratch.heap;
    symbols.clear();
    heap.clear();
    const auto count = static_cast<int32_t>(tokens.size() - begin);
    for (int32_t i = 0; i < count; ++i) {
      const ModelToken& token = tokens[begin + static_cast<size_t>(i)];
      symbols.push_back({token.id, i - 1, i + 1 < count ? i + 1 : -1, token.end, true});
    }
    const auto symbol = [&](int32_t i) -> ModelScratch::Symbol& { return symbols[static_cast<size_t>(i)]; };
    const auto consider = [&](int32_t left) {
      if (left < 0 || symbol(left).next < 0) return false;
      const Pair* pair = find(symbol(left).id, symbol(symbol(left).next).id);
      if (pair) heap.push_back({pair->rank, static_cast<uint32_t>(left), pair->merged});
      return pair != nullptr;
    };
    for (int32_t i = 0; i < count; ++i) consider(i);
    std::make_heap(heap.begin(), heap.end());
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      const ModelScratch::Merge top = heap.back();
      heap.pop_back();
      const auto location = static_cast<int32_t>(top.location);
      if (!symbol(location).alive || symbol(location).next < 0) continue;
      const int32_t right = symbol(location).next;
      const Pair* pair = find(symbol(location).id, symbol(right).id);
      if (!pair || pair->rank != top.rank) continue;  // one of the two has changed since
      ModelScratch::Symbol& merged = symbol(location);
      merged.id = top.merged;
      merged.end = symbol(right).end;
      merged.next = symbol(right).next;
      symbol(right).alive = false;
      if (merged.next >= 0) symbol(merged.next).previous = location;
      if (consider(merged.previous)) std::push_heap(heap.begin(), heap.end());
      if (consider(location)) std::push_heap(heap.begin(), heap.end());
    }
    tokens.resize(begin);
    for (int32_t i = 0; i >= 0; i = symbol(i).next) tokens.push_back({symbol(i).id, symbol(i).end});
  }

  const bool byte_level_;      // words are raw bytes, pieces are spelt in GPT-2's alphabet of bytes
  bool byte_fallback_;         // a character without a piece becomes <0xE2> and so on
  bool fuse_unknown_;          // a run of unknown characters is one unknown token
  bool ignore_merges_;         // a word that is a piece is that piece, whatever the merges make of it
  std::string unknown_piece_;  // "": unknown characters are left out
  std::string continuing_prefix_, word_suffix_;
  TokenId unknown_ = -1;
  TokenId byte_ids_[256];  // of single bytes: byte_level's pieces, or byte_fallback's
  std::vector<Pair> own_pairs_;
  std::vector<Merge> own_merges_;
  std::span<const Pair> pairs_;  // at most half full
  std::span<const Merge> merges_;
  int shift_ = 0;  // 64 - log2(pairs_.size())
};

}  // namespace

std::unique_ptr<SubwordModel> read_bpe(const JsonObject& json, bool byte_level, const TokenizerTables* tables) {
  return std::make_unique<BpeModel>(json, byte_level, tables);
}

}  // namespace linnet
