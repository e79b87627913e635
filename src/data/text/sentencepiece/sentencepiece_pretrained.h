// SentencePiece models as model folders carry them.
#pragma once
#include <optional>
#include <unordered_map>
#include "data/text/pipeline/pipeline.h"
#include "data/text/sentencepiece/sentencepiece_model.h"

namespace linnet {
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
