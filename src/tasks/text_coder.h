// Text to tokens of a language model and back, with any tokenizer.
#pragma once
#include <functional>
#include "config/config.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {
// Appends the tokens of a text.
using EncodeText = std::function<void(std::string_view text, std::vector<int32_t>& ids)>;

// Decodes tokens one by one to whole characters.
class TextFlow {
 public:
  virtual ~TextFlow() = default;
  virtual std::string push(int32_t token) = 0;
  virtual std::string finish() { return ""; }  // the rest
};

class TextCoder {
 public:
  virtual ~TextCoder() = default;
  virtual int64_t vocab_size() const = 0;
  // Appends only the tokens of a text, line ends included.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Appends the tokens of a text by itself, with template tokens (Llama's <s>), like transformers' tokenizer(text).
  virtual void encode_whole(std::string_view text, std::vector<int32_t>& ids) const { encode(text, ids); }
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  // The token that encode_whole() puts before a text; -1: none.
  virtual int32_t begin() const { return -1; }
  // The token that ends a document; -1: none.
  virtual int32_t separator() const = 0;
  // The first token to continue from without a prompt.
  virtual int32_t start() const = 0;
  // The model folder's tokenizer; null for other kinds.
  virtual const PretrainedTokenizer* pretrained() const { return nullptr; }
  // Decodes tokens that follow `context`.
  virtual std::unique_ptr<TextFlow> flow(std::span<const int32_t> context) const;
  std::unique_ptr<TextFlow> flow() const { return flow({}); }
  // The number of tokens for characters missing from the vocabulary.
  virtual int64_t unknown_count(const std::vector<int32_t>&) const { return 0; }
  virtual void save(const std::string& folder) const = 0;
};

// Tokens that follow `context`, with a model folder's tokenizer.
std::unique_ptr<TextFlow> flow_of(const PretrainedTokenizer& tokenizer, std::span<const int32_t> context = {});

std::unique_ptr<TextCoder> make_character_coder(std::unique_ptr<Tokenizer> tokenizer);
std::unique_ptr<TextCoder> make_pretrained_coder(std::unique_ptr<PretrainedTokenizer> tokenizer);
// Opens a model folder's tokenizer, or a tokenizer file.
std::unique_ptr<TextCoder> open_text_coder(const std::string& path);
// For token files without a tokenizer: text is numbers.
std::unique_ptr<TextCoder> make_number_coder(int64_t vocab_size);
// Trains a tokenizer of the configured kind, or opens the configured one.
std::unique_ptr<TextCoder> make_text_coder(const Config& config, const std::vector<std::string>& texts);
std::unique_ptr<TextCoder> load_text_coder(const std::string& folder);  // what save() wrote
}  // namespace linnet
