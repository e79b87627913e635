#include "app/text_coder.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer.h"

namespace linnet {
namespace {

// The tokenizer of single characters takes line ends as it takes letters.
class CharacterCoder : public TextCoder {
 public:
  explicit CharacterCoder(std::unique_ptr<Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override { tokenizer_->encode(text, ids); }
  std::string decode(const std::vector<int32_t>& ids) const override { return tokenizer_->decode(ids); }
  int32_t separator() const override { return tokenizer_->special().end; }
  int64_t unknown_count(const std::vector<int32_t>& ids) const override {
    return std::count(ids.begin(), ids.end(), tokenizer_->special().unknown);
  }
  void save(const std::string& folder) const override { tokenizer_->save(folder, "tokenizer"); }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace

std::unique_ptr<TextCoder> make_text_coder(const Config& config, const std::vector<std::string>& texts) {
  TokenizerOptions options;
  options.kind = config.data.tokenizer;
  options.vocab_size = config.data.vocab_size;
  return std::make_unique<CharacterCoder>(train_tokenizer(options, texts));
}

std::unique_ptr<TextCoder> load_text_coder(const Config&, const std::string& folder) {
  return std::make_unique<CharacterCoder>(load_tokenizer(folder, "tokenizer"));
}

}  // namespace linnet
