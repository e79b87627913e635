// Text to the tokens of a language model and back, whatever the tokenizer.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace linnet {

class TextCoder {
 public:
  virtual ~TextCoder() = default;
  virtual int64_t vocab_size() const = 0;
  // Appends the tokens of a text, line ends included, and nothing else.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Bytes; a token may end within a character.
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  // The token between documents, which begins each and ends the one before.
  virtual int32_t separator() const = 0;
  // How many of these tokens stand for characters the vocabulary does not have.
  virtual int64_t unknown_count(const std::vector<int32_t>&) const { return 0; }
  virtual void save(const std::string& folder) const = 0;
};

// Learns a tokenizer of the configured kind, or reads the one the configuration names.
std::unique_ptr<TextCoder> make_text_coder(const Config& config, const std::vector<std::string>& texts);
// What save() left in a run folder.
std::unique_ptr<TextCoder> load_text_coder(const Config& config, const std::string& folder);

}  // namespace linnet
