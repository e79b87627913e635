// Tokenizers of model folders: byte-level BPE (GPT-2, Llama 3), WordPiece (BERT), unigram and BPE SentencePiece models
// (T5, Llama, Marian). Their ids equal those of tiktoken, tokenizers and sentencepiece.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "data/text/tokenizer.h"

namespace linnet {
constexpr TokenId kNoToken = -1;  // no such token

// The tokens of each role; kNoToken if a model has none. Roles may share a token, as in GPT-2.
struct TokenRoles {
  TokenId begin = kNoToken;     // before the first token of a text
  TokenId end = kNoToken;       // behind the last token of a text
  TokenId pad = kNoToken;       // fills rows up to the longest
  TokenId unknown = kNoToken;   // for what the vocabulary lacks
  TokenId classify = kNoToken;  // BERT's [CLS]
  TokenId separate = kNoToken;  // BERT's [SEP]
  TokenId mask = kNoToken;      // BERT's [MASK]
};

// Bytes [begin, end) of the original text; {0, 0} for a special token that was added.
struct TextRange {
  size_t begin = 0;                                   // first byte
  size_t end = 0;                                     // behind the last byte
  bool operator==(const TextRange&) const = default;  // whether both are equal
};

// The tokens of a text or of two. All vectors have one element a token.
struct Encoding {
  std::vector<TokenId> ids;        // the tokens
  std::vector<TextRange> offsets;  // bytes of the first or second text, by `segments`
  std::vector<uint8_t> segments;   // 0 or 1: first or second text (BERT's token types)
  std::vector<uint8_t> special;    // 1: added by the template
};

// Which text is cut if two are too long together.
enum class Truncation {
  kLongestFirst,  // the longer one, token by token
  kOnlyFirst,     // the first
  kOnlySecond,    // the second
};

// How a text is encoded.
struct EncodeOptions {
  bool add_special = true;                            // apply the template, as in [CLS] A [SEP] B [SEP]
  int64_t max_length = 0;                             // most tokens, with the template's; cuts the end; 0: no limit
  Truncation truncation = Truncation::kLongestFirst;  // of two texts
  bool offsets = true;                                // false: Encoding::offsets stays empty, which is faster
  bool with_spaces = false;  // offsets have a token's spaces where trim_offsets leaves them out
  bool all_special = false;  // read the text as encode_with_special()
};

// A tokenizer of a model folder. Thread-safe.
class PretrainedTokenizer : public Tokenizer {
 public:
  std::string kind() const override = 0;    // "bpe", "wordpiece", "unigram", "wordlevel" or "sentencepiece"
  int64_t vocab_size() const override = 0;  // the largest id + 1, with added tokens
  using Tokenizer::decode;
  using Tokenizer::encode;

  // Appends the tokens of the text alone, without the template. Special tokens spelt out in the text ("<|endoftext|>")
  // become their ids, as in tokenizers. Byte-level BPE keeps invalid UTF-8; the others read U+FFFD.
  void encode(std::string_view text, std::vector<TokenId>& ids) const override = 0;
  // The same, but all special tokens that are spelt out become their ids, as in chat templates: also control tokens of
  // SentencePiece models, which encode() reads as text.
  virtual void encode_with_special(std::string_view text, std::vector<TokenId>& ids) const { encode(text, ids); }
  // The tokens of one text, with the template.
  virtual Encoding encode(std::string_view text, const EncodeOptions& options) const = 0;
  // The tokens of two texts, with the template.
  virtual Encoding encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options) const = 0;
  // How many tokens the template adds to one text, or to two.
  virtual int64_t added_by_template(bool pair) const = 0;

  // The text of tokens without special ones; ids outside the vocabulary give nothing (models round their vocabulary
  // up). Byte-level BPE gives the original bytes, which for tokens cut out of a text need not be UTF-8.
  std::string decode(std::span<const TokenId> ids) const override { return decode(ids, true); }
  // The same; `skip_special`: leave special tokens out.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;
  // The token as the files spell it ("Ġthe", "##ing"); "" for a gap in the vocabulary.
  std::string piece(TokenId id) const override = 0;
  // The id of a token as the files spell it, or kNoToken.
  virtual TokenId id_of(std::string_view piece) const = 0;
  virtual bool is_special(TokenId id) const = 0;  // whether it is a special token

  const TokenRoles& roles() const { return roles_; }           // the tokens of each role
  void set_roles(const TokenRoles& roles) { roles_ = roles; }  // changes the roles
  // roles() by the names of trained tokenizers.
  SpecialTokens special() const override { return {roles_.pad, roles_.unknown, roles_.begin, roles_.end}; }
  // The most tokens of a text, tokenizer_config.json's model_max_length; 0 if it has none.
  int64_t max_length() const { return max_length_; }
  void set_max_length(int64_t length) { max_length_ = length; }  // changes max_length()
  // The template that turns a conversation into text (see ChatTemplate), or "".
  const std::string& chat_template() const { return chat_template_; }
  void set_chat_template(std::string source) { chat_template_ = std::move(source); }  // changes it

  // The files that tokenizers and transformers load, text by name: tokenizer.json and tokenizer_config.json, or others.
  virtual std::map<std::string, std::string> files() const = 0;
  // Writes files() to a folder. Throws Error(kSystem) if that fails.
  void save_pretrained(const std::string& folder) const;
  // Writes files() to folder/stem, as in run folders.
  void save(const std::string& folder, const std::string& stem) const override { save_pretrained(folder + "/" + stem); }

 protected:
  TokenRoles roles_;           // what roles() returns
  int64_t max_length_ = 0;     // what max_length() returns
  std::string chat_template_;  // what chat_template() returns
};

// Loads a tokenizer. `path` is a file (tokenizer.json, a SentencePiece model, vocab.txt) or a folder with the first of:
// tokenizer.json; vocab.json or encoder.json with merges.txt or vocab.bpe; spiece.model, tokenizer.model,
// sentencepiece.bpe.model; vocab.txt. Roles come from tokenizer_config.json and special_tokens_map.json, else from the
// usual spellings. Throws Error(kUser) of one line that names a missing or damaged file.
std::unique_ptr<PretrainedTokenizer> load_pretrained_tokenizer(const std::string& path);
bool has_pretrained_tokenizer(const std::string& folder);  // whether it has any such file

// The bytes of the text without a last character that further tokens may complete.
size_t whole_size(std::string_view text);

// The text of a token stream. push() returns text that later tokens cannot change; it holds half a character back.
class TextStream {
 public:
  // `context`: the tokens before the stream. Their text is not returned, but decides how the first token reads: Llama's
  // tokenizers drop the space before a word only at a text's beginning. The tokenizer outlives the stream.
  explicit TextStream(
      const PretrainedTokenizer& tokenizer, bool skip_special = true, std::span<const TokenId> context = {});
  // Takes a token and returns the text that it completes, often "".
  std::string push(TokenId id);
  std::string finish();  // returns what was held back

 private:
  std::string advance(bool last);
  void shorten_window();

  const PretrainedTokenizer& tokenizer_;
  bool skip_special_;
  std::vector<TokenId> window_;  // the last tokens: the text of a token may depend on those before it
  std::string shown_;            // the window's text as it was when its last part was handed out
};

// The ranges in code points, as tokenizers counts them.
std::vector<TextRange> code_point_offsets(std::string_view text, std::span<const TextRange> offsets);
}  // namespace linnet
