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

#include "text/tokenizer.h"

namespace linnet {

constexpr TokenId kNoToken = -1;

// What a model uses which token for; kNoToken where it has none. Several roles may share a token (GPT-2: begin, end and
// unknown are <|endoftext|>).
struct TokenRoles {
  TokenId begin = kNoToken, end = kNoToken, pad = kNoToken, unknown = kNoToken;
  TokenId classify = kNoToken, separate = kNoToken, mask = kNoToken;  // BERT's [CLS], [SEP], [MASK]
};

// Bytes of the original text, [begin, end). A special token that was put in covers nothing: {0, 0}.
struct TextRange {
  size_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

// All vectors have one element a token.
struct Encoding {
  std::vector<TokenId> ids;
  std::vector<TextRange> offsets;  // into the first or the second text, as `segments` says
  std::vector<uint8_t> segments;   // 0: first text, 1: second (BERT's token types)
  std::vector<uint8_t> special;    // 1: put in by the template, not part of the text
};

enum class Truncation {
  kLongestFirst,  // of two texts the longer one is cut, token by token
  kOnlyFirst,
  kOnlySecond,
};

struct EncodeOptions {
  bool add_special = true;  // by the tokenizer's template: [CLS] A [SEP] B [SEP], A </s>, <s> A
  int64_t max_length = 0;   // tokens, the template's own included; 0: no limit. The end is cut off.
  Truncation truncation = Truncation::kLongestFirst;
  bool offsets = true;  // false: `offsets` stays empty, which is faster
};

class PretrainedTokenizer : public Tokenizer {
 public:
  std::string kind() const override = 0;    // "bpe" | "wordpiece" | "unigram" | "sentencepiece"
  int64_t vocab_size() const override = 0;  // largest id + 1, with added tokens
  using Tokenizer::decode;
  using Tokenizer::encode;

  // Tokenizer's: appends the tokens of the text alone, without the template. Special tokens that are spelt out in the
  // text ("<|endoftext|>") become their ids, as in tokenizers. Bytes that are no UTF-8 are kept by byte-level BPE and
  // become U+FFFD in the others. Safe from several threads at once.
  void encode(std::string_view text, std::vector<TokenId>& ids) const override = 0;
  // The same where every special token that is spelt out becomes its id, as chat templates spell them: also the control
  // tokens of SentencePiece models ("<s>"), which encode() takes for text.
  virtual void encode_with_special(std::string_view text, std::vector<TokenId>& ids) const { encode(text, ids); }
  virtual Encoding encode(std::string_view text, const EncodeOptions& options) const = 0;
  virtual Encoding encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options) const = 0;
  // How many tokens the template adds to one text, or to two.
  virtual int64_t added_by_template(bool pair) const = 0;

  // Without special tokens; ids outside the vocabulary give nothing (models round their vocabulary up). The text of
  // byte-level BPE is the bytes as they were, which need not be UTF-8 when tokens are cut out of a text.
  std::string decode(std::span<const TokenId> ids) const override { return decode(ids, true); }
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;
  std::string piece(TokenId id) const override = 0;         // as the files spell it ("Ġthe", "##ing"); "" for a gap
  virtual TokenId id_of(std::string_view piece) const = 0;  // kNoToken when there is none
  virtual bool is_special(TokenId id) const = 0;

  const TokenRoles& roles() const { return roles_; }
  void set_roles(const TokenRoles& roles) { roles_ = roles; }
  SpecialTokens special() const override { return {roles_.pad, roles_.unknown, roles_.begin, roles_.end}; }
  // tokenizer_config.json's model_max_length; 0 when it has none.
  int64_t max_length() const { return max_length_; }
  void set_max_length(int64_t length) { max_length_ = length; }
  // How the model's folder puts a conversation into a text (see ChatTemplate); "" when it does not say.
  const std::string& chat_template() const { return chat_template_; }
  void set_chat_template(std::string source) { chat_template_ = std::move(source); }

  // tokenizer.json and tokenizer_config.json, or what else tokenizers and transformers load: text by name.
  virtual std::map<std::string, std::string> files() const = 0;
  void save_pretrained(const std::string& folder) const;  // writes them
  // For run folders: save_pretrained(folder/stem).
  void save(const std::string& folder, const std::string& stem) const override;

 protected:
  TokenRoles roles_;
  int64_t max_length_ = 0;
  std::string chat_template_;
};

// `path` is a file (tokenizer.json, a SentencePiece model, vocab.txt) or a folder that holds the first of:
// tokenizer.json; vocab.json or encoder.json beside merges.txt or vocab.bpe; spiece.model, tokenizer.model,
// sentencepiece.bpe.model; vocab.txt. Roles come from tokenizer_config.json and special_tokens_map.json beside it, else
// from the usual spellings. A missing or damaged file is a user error of one line that names it.
std::unique_ptr<PretrainedTokenizer> load_pretrained_tokenizer(const std::string& path);
// Whether a folder holds any such file.
bool has_pretrained_tokenizer(const std::string& folder);

// How much of the text is whole: all but a last character that further tokens may complete.
size_t whole_size(std::string_view text);

// The text of a token stream as it grows. Text that later tokens cannot change is handed out; half a character is held
// back.
class TextStream {
 public:
  // `context`: the tokens before the stream. Their text is not handed out, but decides how the first token reads: the
  // space before a word of Llama's tokenizers is dropped only where a text begins.
  explicit TextStream(const PretrainedTokenizer& tokenizer, bool skip_special = true,
                      std::span<const TokenId> context = {});
  std::string push(TokenId id);  // the text that this token completes, often empty
  std::string finish();          // what was held back

 private:
  std::string advance(bool last);
  void shorten_window();

  const PretrainedTokenizer& tokenizer_;
  bool skip_special_;
  std::vector<TokenId> window_;  // the last tokens: the text of a token may depend on those before it
  size_t shown_ = 0;             // bytes of the window's text that were handed out
};

// The same ranges in code points, as tokenizers counts them.
std::vector<TextRange> code_point_offsets(std::string_view text, std::span<const TextRange> offsets);

}  // namespace linnet
