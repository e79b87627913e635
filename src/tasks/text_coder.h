// Text to the tokens of a language model and back, whatever the tokenizer.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "config/config.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {

// Appends the tokens of a text.
using EncodeText = std::function<void(std::string_view text, std::vector<int32_t>& ids)>;

// The text of tokens as they come: whole characters, never a part of one.
class TextFlow {
 public:
  virtual ~TextFlow() = default;
  virtual std::string push(int32_t token) = 0;
  virtual std::string finish() = 0;  // what was held back
};

class TextCoder {
 public:
  virtual ~TextCoder() = default;
  virtual int64_t vocab_size() const = 0;
  // Appends the tokens of a text, line ends included, and nothing else.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Appends what the tokenizer makes of a text by itself: also the tokens of its template, as <s> before Llama's texts.
  // It is what transformers' tokenizer(text) gives.
  virtual void encode_whole(std::string_view text, std::vector<int32_t>& ids) const { encode(text, ids); }
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  // The token that encode_whole() puts before a text; -1 when there is none.
  virtual int32_t begin() const { return -1; }
  // The token that ends a document; -1 when there is none.
  virtual int32_t separator() const = 0;
  // What to go on from when there is no text yet.
  virtual int32_t start() const = 0;
  // The text of tokens that follow `context`.
  // The tokenizer of a model folder behind it; null for other kinds.
  virtual const PretrainedTokenizer* pretrained() const { return nullptr; }
  virtual std::unique_ptr<TextFlow> flow(std::span<const int32_t> context) const = 0;
  std::unique_ptr<TextFlow> flow() const { return flow({}); }
  // How many of these tokens stand for characters the vocabulary does not have.
  virtual int64_t unknown_count(const std::vector<int32_t>&) const { return 0; }
  virtual void save(const std::string& folder) const = 0;
  // tokenizer.json and the like of a model folder, text by name; nothing when this kind has no such files.
  virtual std::map<std::string, std::string> pretrained_files() const { return {}; }
};

// Of a tokenizer of single characters, and of one that a model folder has.
std::unique_ptr<TextCoder> make_character_coder(std::unique_ptr<Tokenizer> tokenizer);
std::unique_ptr<TextCoder> make_pretrained_coder(std::unique_ptr<PretrainedTokenizer> tokenizer);
// A tokenizer of a model folder, or a file of one.
std::unique_ptr<TextCoder> open_text_coder(const std::string& path);
// For token files without a tokenizer: text is numbers.
std::unique_ptr<TextCoder> make_number_coder(int64_t vocab_size);
// Learns a tokenizer of the configured kind, or opens the one the configuration names.
std::unique_ptr<TextCoder> make_text_coder(const Config& config, const std::vector<std::string>& texts);
// What save() left in a run folder.
std::unique_ptr<TextCoder> load_text_coder(const std::string& folder);

}  // namespace linnet
