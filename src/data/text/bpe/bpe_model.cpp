#include "data/text/bpe/bpe_model.h"
#include <algorithm>
#include <bit>
#include <cstdio>
#include "base/error.h"
#include "data/text/bpe/byte_alphabet.h"
#include "data/text/pipeline/tokenizer_tables.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

// Up to here a word's lowest pair is found by looking at all of them; a heap pays for itself later.
constexpr size_t kShort = 48;

}  // namespace

BpeModel::BpeModel(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
                   BpeOptions options, const std::string& where)
    : options_(std::move(options)) {
  vocabulary_ = std::move(vocabulary);
  find_special();
  const size_t slots = std::bit_ceil(std::max<size_t>(2 * merges.size(), 16));
  own_pairs_.resize(slots);
  shift_ = 64 - std::countr_zero(slots);
  own_merges_.reserve(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const size_t prefix = right.starts_with(options_.continuing_prefix) ? options_.continuing_prefix.size() : 0;
    joined = left + right.substr(prefix);
    const TokenId l = vocabulary_.find(left), r = vocabulary_.find(right), merged = vocabulary_.find(joined);
    if (l < 0 || r < 0 || merged < 0)
      fail_user(where + ": merge " + std::to_string(rank + 1) + " needs a piece that is not in the vocabulary");
    own_merges_.push_back({l, r});
    insert({static_cast<uint64_t>(static_cast<uint32_t>(l)) << 32 | static_cast<uint32_t>(r),
            static_cast<uint32_t>(rank), merged});
  }
  pairs_ = own_pairs_, merges_ = own_merges_;
}

BpeModel::BpeModel(const TokenizerTables& tables, BpeOptions options)
    : options_(std::move(options)),
      pairs_(tables.table<Pair>(TokenizerTable::kPairs)),
      merges_(tables.table<Merge>(TokenizerTable::kMerges)) {
  vocabulary_ = tables.vocabulary();
  find_special();
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
  keep(tables.owner());
}

void BpeModel::find_special() {
  if (!options_.unknown_piece.empty()) unknown_ = vocabulary_.find(options_.unknown_piece);
  for (int byte = 0; byte < 256; ++byte) {
    std::string piece;
    if (options_.byte_level) {
      const char c = static_cast<char>(byte);
      spell_bytes({&c, 1}, piece);
    } else {
      char text[8];
      std::snprintf(text, sizeof text, "<0x%02X>", byte);
      piece = text;
    }
    byte_ids_[byte] = vocabulary_.find(piece);
  }
}

// A pair that comes twice has its last rank, as in tokenizers.
void BpeModel::insert(Pair pair) {
  size_t slot = (pair.key * 0x9e3779b97f4a7c15u) >> shift_;
  while (own_pairs_[slot].merged >= 0 && own_pairs_[slot].key != pair.key) slot = (slot + 1) & (own_pairs_.size() - 1);
  own_pairs_[slot] = pair;
}

void BpeModel::tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const {
  if (options_.ignore_merges) {
    std::string_view piece = word;
    if (options_.byte_level) {
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

// The word's characters (or bytes) as the first symbols.
void BpeModel::split(std::string_view word, std::vector<ModelToken>& symbols, std::string& spelling) const {
  bool in_unknown = false;
  const auto unknown = [&](size_t end) {
    if (unknown_ < 0) return;
    if (in_unknown && options_.fuse_unknown) symbols.back().end = static_cast<uint32_t>(end);
    else symbols.push_back({unknown_, static_cast<uint32_t>(end)});
    in_unknown = true;
  };
  if (options_.byte_level && options_.continuing_prefix.empty() && options_.word_suffix.empty()) {
    for (size_t i = 0; i < word.size(); ++i) {
      const TokenId id = byte_ids_[static_cast<unsigned char>(word[i])];
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
    const size_t length = options_.byte_level ? 1 : utf8_length_at(word, i), end = i + length;
    spelling.clear();
    if (i > 0) spelling += options_.continuing_prefix;
    if (options_.byte_level) spell_bytes(word.substr(i, length), spelling);
    else spelling += word.substr(i, length);
    if (end == word.size()) spelling += options_.word_suffix;
    const TokenId id = vocabulary_.find(spelling);
    if (id >= 0) {
      symbols.push_back({id, static_cast<uint32_t>(end)});
      in_unknown = false;
    } else if (options_.byte_fallback && std::all_of(word.begin() + static_cast<std::ptrdiff_t>(i),
                                                     word.begin() + static_cast<std::ptrdiff_t>(end), [&](char c) {
                                                       return byte_ids_[static_cast<unsigned char>(c)] >= 0;
                                                     })) {
      for (size_t k = i; k < end; ++k)
        symbols.push_back({byte_ids_[static_cast<unsigned char>(word[k])], static_cast<uint32_t>(k + 1)});
      in_unknown = false;
    } else {
      unknown(end);
    }
    i = end;
  }
}

void BpeModel::merge_short(std::vector<ModelToken>& symbols, size_t begin) const {
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

void BpeModel::merge_long(std::vector<ModelToken>& tokens, size_t begin, ModelScratch& scratch) const {
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

}  // namespace linnet
