// Tokenizers as model folders carry them: byte-level BPE (GPT-2, Llama 3), WordPiece (BERT), unigram and BPE
// SentencePiece models (T5, Llama, Marian). They give the ids that tiktoken, tokenizers and sentencepiece give.
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

// Stands for a token that a tokenizer does not have.
constexpr TokenId kNoToken = -1;

// What a model uses which token for; kNoToken where it has none. Several roles may share a token (GPT-2: begin, end and
// unknown are <|endoftext|>).
struct TokenRoles {
  // Before the first token of a text.
  TokenId begin = kNoToken;
  // Behind the last token of a text.
  TokenId end = kNoToken;
  // Fills rows up to the length of the longest.
  TokenId pad = kNoToken;
  // Stands for what the vocabulary does not have.
  TokenId unknown = kNoToken;
  // BERT's [CLS].
  TokenId classify = kNoToken;
  // BERT's [SEP].
  TokenId separate = kNoToken;
  // BERT's [MASK].
  TokenId mask = kNoToken;
};

// Bytes of the original text, [begin, end). A special token that was put in covers nothing: {0, 0}.
struct TextRange {
  // The first byte.
  size_t begin = 0;
  // The byte behind the last one.
  size_t end = 0;
  // Whether both are equal.
  bool operator==(const TextRange&) const = default;
};

// The tokens of a text or of two. All vectors have one element a token.
struct Encoding {
  // The tokens.
  std::vector<TokenId> ids;
  // What each covers of the first or the second text, as `segments` says.
  std::vector<TextRange> offsets;
  // 0: of the first text, 1: of the second (BERT's token types).
  std::vector<uint8_t> segments;
  // 1: put in by the template, not part of the text.
  std::vector<uint8_t> special;
};

// Which text is cut when two are too long together.
enum class Truncation {
  kLongestFirst,  // the longer one, token by token
  kOnlyFirst,     // the first
  kOnlySecond,    // the second
};

// How a text is encoded.
struct EncodeOptions {
  // Whether the tokenizer's template is applied, for example [CLS] A [SEP] B [SEP].
  bool add_special = true;
  // The most tokens, the template's own included; the end of the text is cut off. 0: no limit.
  int64_t max_length = 0;
  // Of two texts.
  Truncation truncation = Truncation::kLongestFirst;
  // False: Encoding::offsets stays empty, which is faster.
  bool offsets = true;
};

// A tokenizer of a model folder. It may be used by several threads at once.
class PretrainedTokenizer : public Tokenizer {
 public:
  // "bpe", "wordpiece", "unigram", "wordlevel" or "sentencepiece".
  std::string kind() const override = 0;
  // The largest id + 1, with added tokens.
  int64_t vocab_size() const override = 0;
  using Tokenizer::decode;
  using Tokenizer::encode;

  // Appends the tokens of the text alone, without the template. Special tokens that are spelt out in the text
  // ("<|endoftext|>") become their ids, as in tokenizers. Bytes that are no UTF-8 are kept by byte-level BPE and become
  // U+FFFD in the others.
  void encode(std::string_view text, std::vector<TokenId>& ids) const override = 0;
  // The same where every special token that is spelt out becomes its id, as chat templates spell them: also the control
  // tokens of SentencePiece models, which encode() takes for text.
  virtual void encode_with_special(std::string_view text, std::vector<TokenId>& ids) const { encode(text, ids); }
  // The tokens of one text by the template.
  virtual Encoding encode(std::string_view text, const EncodeOptions& options) const = 0;
  // The tokens of two texts by the template.
  virtual Encoding encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options) const = 0;
  // How many tokens the template adds to one text, or to two.
  virtual int64_t added_by_template(bool pair) const = 0;

  // The text of tokens without special ones; ids outside the vocabulary give nothing (models round their vocabulary
  // up). The text of byte-level BPE is the bytes as they were, which need not be UTF-8 when tokens are cut out of a
  // text.
  std::string decode(std::span<const TokenId> ids) const override { return decode(ids, true); }
  // The same, where `skip_special` says whether special tokens are left out.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;
  // The token as the files spell it ("Ġthe", "##ing"); "" where the vocabulary has a gap.
  std::string piece(TokenId id) const override = 0;
  // The id of a token as the files spell it; kNoToken when there is none.
  virtual TokenId id_of(std::string_view piece) const = 0;
  // Whether the token is a special one.
  virtual bool is_special(TokenId id) const = 0;

  // What the model uses which token for.
  const TokenRoles& roles() const { return roles_; }
  // Changes the roles.
  void set_roles(const TokenRoles& roles) { roles_ = roles; }
  // The same as roles(), by the names of trained tokenizers.
  SpecialTokens special() const override { return {roles_.pad, roles_.unknown, roles_.begin, roles_.end}; }
  // The most tokens of a text, tokenizer_config.json's model_max_length; 0 when it has none.
  int64_t max_length() const { return max_length_; }
  // Changes max_length().
  void set_max_length(int64_t length) { max_length_ = length; }
  // How the model's folder puts a conversation into a text (see ChatTemplate); "" when it does not say.
  const std::string& chat_template() const { return chat_template_; }
  // Changes chat_template().
  void set_chat_template(std::string source) { chat_template_ = std::move(source); }

  // The files that tokenizers and transformers load, text by name: tokenizer.json and tokenizer_config.json, or others.
  virtual std::map<std::string, std::string> files() const = 0;
  // Writes files() to a folder. Throws Error(kSystem) when that fails.
  void save_pretrained(const std::string& folder) const;
  // Writes files() to folder/stem, as run folders have them.
  void save(const std::string& folder, const std::string& stem) const override;

 protected:
  TokenRoles roles_;           // what roles() returns
  int64_t max_length_ = 0;     // what max_length() returns
  std::string chat_template_;  // what chat_template() returns
};

// Loads a tokenizer. `path` is a file (tokenizer.json, a SentencePiece model, vocab.txt) or a folder that holds the
// first of: tokenizer.json; vocab.json or encoder.json beside merges.txt or vocab.bpe; spiece.model, tokenizer.model,
// sentencepiece.bpe.model; vocab.txt. Roles come from tokenizer_config.json and special_tokens_map.json beside it, else
// from the usual spellings. Throws Error(kUser) of one line that names a missing or damaged file.
std::unique_ptr<PretrainedTokenizer> load_pretrained_tokenizer(const std::string& path);
// Whether a folder holds any such file.
bool has_pretrained_tokenizer(const std::string& folder);

// How many bytes of the text are whole: all but a last character that further tokens may complete.
size_t whole_size(std::string_view text);

// The text of a token stream as it grows. Text that later tokens cannot change is handed out; half a character is held
// back.
class TextStream {
 public:
  // `context`: the tokens before the stream. Their text is not handed out, but decides how the first token reads: the
  // space before a word of Llama's tokenizers is dropped only where a text begins. The tokenizer outlives the stream.
  explicit TextStream(const PretrainedTokenizer& tokenizer, bool skip_special = true,
                      std::span<const TokenId> context = {});
  // Takes a token and returns the text that it completes, often "".
  std::string push(TokenId id);
  // Returns what was held back.
  std::string finish();

 private:
  std::string advance(bool last);
  void shorten_window();

  const PretrainedTokenizer& tokenizer_;
  bool skip_special_;
  std::vector<TokenId> window_;  // the last tokens: the text of a token may depend on those before it
  std::string shown_;            // the window's text as it was when its last part was handed out
};

// The same ranges in code points, as tokenizers counts them.
std::vector<TextRange> code_point_offsets(std::string_view text, std::span<const TextRange> offsets);

}  // namespace linnet
