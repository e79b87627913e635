// SentencePiece models as model folders carry them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
#include "data/text/byte_trie.h"
#include "data/text/pipeline/pipeline.h"
#include "data/text/pipeline/subword_model.h"
#include "data/text/sentencepiece/sentencepiece_normalizer.h"
#include "data/text/sentencepiece/sentencepiece_proto.h"

namespace linnet {

// The step of a SentencePiece model that cuts a normalized text into pieces, the way SentencePiece's own code does: its
// sums are in fp32 and of ways that are equally good it takes the one it finds first.
// What one thread needs besides the model; reused from text to text.
struct SentencePieceScratch {
  std::string text;  // normalized
  std::vector<size_t> sources;
  std::vector<ModelToken> tokens, word;
  WordCache cache;
  float sum;     // unigram: of the tokens' scores
  struct Node {  // the best way to a place
    float score;
    uint32_t begin;
    TokenId id;
  };
  std::vector<Node> nodes;
  struct TwoBest {
    double best, second;
    uint32_t begin;
    TokenId id;
  };
  std::vector<TwoBest> two_best;
  struct Symbol {  // BPE
    uint32_t begin, size;
    int32_t previous, next;
    bool frozen;
  };
  std::vector<Symbol> symbols;
  struct Pair {
    float score;
    uint32_t left, right, size;
    // The largest score first, then the leftmost.
    bool operator<(const Pair& other) const { return score != other.score ? score < other.score : left > other.left; }
  };
  std::vector<Pair> pairs;
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
  // `file` is what read_sentencepiece_model() made of `bytes`; `path` is for messages.
  SentencePiecePretrained(SentencePieceModelFile file, std::string bytes, const std::string& path,
                          SentencePieceOptions options);
  SentencePiecePretrained(const std::string& bytes, const std::string& path, SentencePieceOptions options)
      : SentencePiecePretrained(read_sentencepiece_model(bytes, path), bytes, path, std::move(options)) {}

  std::string kind() const override { return "sentencepiece"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }
  using PretrainedTokenizer::decode;
  void encode_with_special(std::string_view text, std::vector<TokenId>& ids) const override {
    tokenize(text, special_matcher_, ids, nullptr);
  }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override;
  std::string piece(TokenId id) const override;
  TokenId id_of(std::string_view piece) const override;
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
  void tokenize(std::string_view text, const AddedTokenMatcher& added, std::vector<TokenId>& ids,
                std::vector<TextRange>* offsets) const;
  void map_ids(const std::string& path);
  void find_roles();
  void make_template();
  TokenId our_id(TokenId id, std::string_view text) const;
  void encode_part(std::string_view part, size_t base, std::vector<TokenId>& ids,
                   std::vector<TextRange>* offsets) const;
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
