// What a SentencePiece model does to a text, the way SentencePiece's own code does: replacements, runs of spaces made
// one, spaces written as "▁"; then the text is cut into pieces, where sums are in fp32 and of ways that are equally
// good the one that is found first is taken.
#pragma once
#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
#include "data/text/byte_trie.h"
#include "data/text/pipeline/subword_model.h"

namespace linnet {

// SentencePiece's ModelProto, read and checked.
struct SentencePieceModelFile {
  enum Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    int type = kNormal;
  };
  struct Normalization {
    std::string charsmap;  // the table of replacements, "" for none
    bool dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;
  };
  std::vector<Piece> pieces;
  Normalization normalization, denormalization;
  int model_type = 1;  // 1: unigram, 2: BPE
  bool byte_fallback = false, space_as_suffix = false;
  std::string unknown_surface = " \xE2\x81\x87 ";  // what the unknown piece decodes to
  std::string begin_piece = "<s>", end_piece = "</s>", pad_piece = "<pad>";
};

// Pieces are distinct, not empty, UTF-8 and of finite score; exactly one is the unknown piece; byte pieces are all 256
// or none; tables of replacements point nowhere outside of themselves. Anything else is a user error of one line;
// `path` is for it.
SentencePieceModelFile read_sentencepiece_model(std::string_view bytes, const std::string& path);

// SentencePiece's table of replacements: a double-array trie (Aoe 1989) from byte strings to places in a list of texts.
class CharsmapTable {
 public:
  CharsmapTable() = default;  // no entries
  // The table as it lies in a model: the trie's size in bytes, the trie, the texts, each ended by a zero byte. A table
  // that points outside of itself is a user error, `where` is for its message.
  CharsmapTable(std::string_view table, const std::string& where);

  // What the shortest entry that `text` begins with becomes; null when none does.
  const char* shortest(std::string_view text) const { return find(text, true).text; }
  struct Entry {
    const char* text = nullptr;
    size_t length = 0;  // of what it replaces
  };
  Entry longest(std::string_view text) const { return find(text, false); }
  // Whether some entry begins with this byte and goes on with an ASCII byte or not at all.
  bool begins_ascii(unsigned char byte) const;

 private:
  Entry find(std::string_view text, bool first) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // "▁"

class SentencePieceNormalizer {
 public:
  // User-defined pieces are kept as they are. `file` outlives this; `path` is for messages.
  SentencePieceNormalizer(const SentencePieceModelFile::Normalization& spec, bool space_as_suffix,
                          const ByteTrie* user_defined, const std::string& path);

  // Replaces `out`. A byte that is no UTF-8 becomes U+FFFD. `sources` may be null; else it gets where each byte of
  // `out` comes from, which is the begin of what was replaced, and one more for the end.
  void apply(std::string_view text, std::string& out, std::vector<size_t>* sources) const;

 private:
  struct Prefix {
    std::string_view text;  // what the first `length` bytes become
    size_t length;
  };
  Prefix prefix_of(std::string_view text) const;
  template <bool kTracked>
  void rewrite(std::string_view text, std::string& out, std::vector<size_t>* sources) const;
  bool is_plain(std::string_view text, size_t at) const;

  CharsmapTable table_;
  const ByteTrie* user_defined_;  // null: there are none
  bool dummy_prefix_, remove_extra_, escape_, suffix_;
  std::bitset<256> plain_;  // ASCII bytes that stay as they are where an ASCII byte follows, or the end
};

// What one thread needs besides the model; reused from text to text.
struct SentencePieceScratch {
  std::string text;  // normalized
  std::vector<size_t> sources;
  std::vector<ModelToken> tokens, word;
  WordCache cache;
  float sum;  // unigram: of the tokens' scores
  std::vector<WayNode<float>> nodes;
  struct TwoBest {
    double best, second;
    uint32_t begin;
    TokenId id;
  };
  std::vector<TwoBest> two_best;
  PairMerger<float> merger;  // BPE
  std::vector<ModelToken> symbols;
  std::unordered_map<std::string_view, uint32_t> splits;  // bytes of the left half of a piece that is not to be used
};

class SentencePieceModel {
 public:
  virtual ~SentencePieceModel() = default;

  // Replaces scratch.tokens by the pieces of scratch.text; what is in no piece is the unknown one, character by
  // character. Safe from several threads, each with its own scratch.
  void tokenize(SentencePieceScratch& scratch) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  TokenId unknown() const { return unknown_; }

 protected:
  SentencePieceModel(const SentencePieceModelFile& file, const std::string& path);
  // Appends the pieces of a word to scratch.word.
  virtual void cut(std::string_view word, SentencePieceScratch& scratch) const = 0;

  const SentencePieceModelFile& file_;
  Vocabulary vocabulary_;
  TokenId unknown_ = 0;
  // No piece has "▁" behind another character: words are the runs of text that begin with it, and no piece reaches
  // across. Else there is one word, which is the text.
  bool has_words_ = true;
};

// `file` outlives the model; `user_defined` too, it is null when there are none.
std::unique_ptr<SentencePieceModel> make_sentencepiece_model(const SentencePieceModelFile& file,
                                                             const ByteTrie* user_defined, const std::string& path);

}  // namespace linnet
