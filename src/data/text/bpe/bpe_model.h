// Byte pair encoding (Sennrich, Haddow & Birch 2016): a word's symbols are merged in the order in which the merges were
// learnt, the leftmost first.
#pragma once
#include <array>
#include <span>
#include "data/text/pipeline/subword_model.h"

namespace linnet {

class TokenizerTables;

struct BpeOptions {
  bool byte_level = false;     // words are raw bytes, pieces are spelt in GPT-2's alphabet of bytes
  bool byte_fallback = false;  // a character without a piece becomes <0xE2> and so on
  bool fuse_unknown = false;   // a run of unknown characters is one unknown token
  bool ignore_merges = false;  // a word that is a piece is that piece, whatever the merges make of it
  std::string unknown_piece;   // "": unknown characters are left out
  std::string continuing_prefix, word_suffix;
};

class BpeModel : public SubwordModel {
 public:
  // The merges in order; pieces and merges that do not fit are a user error, `where` is for its message.
  BpeModel(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges, BpeOptions options,
           const std::string& where);
  // The same from tables, which it keeps.
  BpeModel(const TokenizerTables& tables, BpeOptions options);

  const char* kind() const override { return "bpe"; }
  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const override;
  TokenId unknown() const override { return unknown_; }
  std::string to_json() const override;
  std::string settings_json() const override;
  void add_tables(TokenizerTableWriter& tables) const override;
  const BpeOptions& options() const { return options_; }

  // Of the table of merges: open addressing, where the upper bits of the key times a constant name the slot. Packed
  // models hold it as it is here.
  struct Pair {
    uint64_t key = UINT64_MAX;  // left << 32 | right
    uint32_t rank = UINT32_MAX;
    TokenId merged = -1;  // -1: nothing is here
  };
  using Merge = std::array<TokenId, 2>;

 private:
  const Pair* find(TokenId left, TokenId right) const {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    for (size_t slot = (key * 0x9e3779b97f4a7c15u) >> shift_;; slot = (slot + 1) & (pairs_.size() - 1)) {
      if (pairs_[slot].key == key) return &pairs_[slot];
      if (pairs_[slot].merged < 0) return nullptr;
    }
  }
  void find_special();
  void insert(Pair pair);
  void split(std::string_view word, std::vector<ModelToken>& symbols, std::string& spelling) const;
  void merge_short(std::vector<ModelToken>& symbols, size_t begin) const;
  void merge_long(std::vector<ModelToken>& symbols, size_t begin, ModelScratch& scratch) const;

  BpeOptions options_;
  TokenId unknown_ = -1;
  TokenId byte_ids_[256];  // of single bytes: byte_level's pieces, or byte_fallback's
  std::vector<Pair> own_pairs_;
  std::vector<Merge> own_merges_;
  std::span<const Pair> pairs_;  // at most half full
  std::span<const Merge> merges_;
  int shift_ = 0;  // 64 - log2(pairs_.size())
};

}  // namespace linnet
