// SentencePiece models as model folders carry them.
#pragma once
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
#include "data/text/byte_trie.h"
#include "data/text/pipeline/subword_model.h"
#include "data/text/pipeline/tokenizer_json.h"

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

// Pieces are distinct, non-empty, UTF-8 and of finite score; exactly one is unknown; byte pieces are all 256 or none;
// replacement tables stay within their bounds. Anything else is a user error of one line with `path`.
SentencePieceModelFile read_sentencepiece_model(std::string_view bytes, const std::string& path);

// SentencePiece's table of replacements: a double-array trie (Aoe 1989) from bytes to offsets of texts.
class CharsmapTable {
 public:
  CharsmapTable() = default;  // no entries
  // The table as stored in a model: the trie's size in bytes, the trie, zero-terminated texts. A table that points
  // outside of itself is a user error with `where`.
  CharsmapTable(std::string_view table, const std::string& where);

  // The replacement of the shortest entry that is a prefix of `text`, or null.
  const char* shortest(std::string_view text) const { return find(text, true).text; }
  struct Entry {
    const char* text = nullptr;
    size_t length = 0;  // of what it replaces
  };
  Entry longest(std::string_view text) const { return find(text, false); }
  // Whether some entry begins with this byte and then ends or has an ASCII byte.
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

  // Replaces `out`. Invalid bytes become U+FFFD. `sources`, if not null, gets the begin of the source of each byte of
  // `out`, and one more for the end.
  void apply(std::string_view text, std::string& out, std::vector<size_t>* sources) const;

 private:
  struct Prefix {
    std::string_view text;  // what the first `length` bytes become
    size_t length;
  };
  Prefix prefix_of(std::string_view text) const;
  bool is_plain(std::string_view text, size_t at) const;

  CharsmapTable table_;
  const ByteTrie* user_defined_;  // null: there are none
  bool dummy_prefix_, remove_extra_, escape_, suffix_;
  std::bitset<256> plain_;  // ASCII bytes that stay as they are where an ASCII byte follows, or the end
};

// Per-thread scratch memory, reused for all texts.
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

  // Replaces scratch.tokens by the pieces of scratch.text; characters in no piece are unknown. Thread-safe.
  void tokenize(SentencePieceScratch& scratch) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  TokenId unknown() const { return unknown_; }

 protected:
  SentencePieceModel(const SentencePieceModelFile& file, const std::string& path);
  virtual void cut(std::string_view word, SentencePieceScratch& scratch) const = 0;

  const SentencePieceModelFile& file_;
  Vocabulary vocabulary_;
  TokenId unknown_ = 0;
  // If pieces have no "▁" inside, words begin with it and no piece spans two of them. Else the text is one word.
  bool has_words_ = true;
};

// `file` outlives the model, and so does `user_defined`, which is null if there are none.
std::unique_ptr<SentencePieceModel> make_sentencepiece_model(
    const SentencePieceModelFile& file, const ByteTrie* user_defined, const std::string& path);

struct SentencePieceOptions {
  std::string file_name = "tokenizer.model";  // what files() gives
  int64_t extra_ids = 0;                      // T5's <extra_id_0> and so on, behind the model's pieces, the last first
  bool add_begin = false, add_end = false;    // the template
  std::string vocabulary;                     // Marian: vocab.json, piece to id; else "": ids are the model's own
  std::string vocabulary_path;                // for messages
  std::string vocabulary_file;                // what files() gives as vocab.json; "": vocabulary
  std::vector<std::string> text_tokens;       // special tokens that a text may spell: languages and others
  std::string first_piece;                    // before every text, if there is one: M2M100's source language
  bool language_marks = false;                // Marian: a text may begin with its language, as >>fra<<
  std::string config_json;                    // tokenizer_config.json as it was read
};

class SentencePiecePretrained : public TemplateTokenizer {
 public:
  // `file`: from read_sentencepiece_model() of `bytes`; `path` is for messages.
  SentencePiecePretrained(
      SentencePieceModelFile file, std::string bytes, const std::string& path, SentencePieceOptions options);
  SentencePiecePretrained(const std::string& bytes, const std::string& path, SentencePieceOptions options)
      : SentencePiecePretrained(read_sentencepiece_model(bytes, path), bytes, path, std::move(options)) {}

  std::string kind() const override { return "sentencepiece"; }
  int64_t vocab_size() const override { return std::ssize(tokens_); }
  using PretrainedTokenizer::decode;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override;
  std::string piece(TokenId id) const override;
  TokenId id_of(std::string_view piece) const override { return find_or(ids_, std::string(piece), kNoToken); }
  bool is_special(TokenId id) const override;
  std::map<std::string, std::string> files() const override;

 private:
  struct Token {
    std::string piece;
    int model_id = -1;  // -1: not the model's
    bool special = false;
  };

  void tokenize(std::string_view text, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const override {
    tokenize(text, added_, ids, offsets);
  }
  void tokenize_with_special(
      std::string_view text, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const override {
    tokenize(text, special_matcher_, ids, offsets);
  }
  void tokenize(std::string_view text, const AddedTokenMatcher& added, std::vector<TokenId>& ids,
      std::vector<TextRange>* offsets) const;
  void map_ids(const std::string& path);
  void find_roles();
  void make_template();
  TokenId our_id(TokenId id, std::string_view text) const;
  void encode_part(
      std::string_view part, size_t base, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const;
  std::string decode_pieces(std::span<const int> model_ids) const;

  std::string bytes_;  // the file's
  SentencePieceOptions options_;
  SentencePieceModelFile file_;
  std::unique_ptr<ByteTrie> user_defined_;
  std::optional<SentencePieceNormalizer> normalizer_, denormalizer_;
  std::unique_ptr<SentencePieceModel> model_;
  mutable ScratchPool<SentencePieceScratch> scratch_;
  std::vector<TokenId> byte_ids_;  // of each byte, with byte fallback
  std::vector<TokenId> to_ours_;   // of each of the model's ids, where they are not the same
  std::vector<Token> tokens_;      // of each id
  std::unordered_map<std::string, TokenId> ids_;
  AddedTokenMatcher added_;            // the extra ids and options_.text_tokens
  AddedTokenMatcher special_matcher_;  // these and the control pieces
};
}  // namespace linnet
