#include "base/error.h"
#include "data/text/bpe/bpe_trainer.h"
#include "tasks/text_coder.h"

namespace linnet {

std::unique_ptr<TextCoder> make_text_coder(const Config& config, const std::vector<std::string>& texts) {
  if (!config.data.tokenizer_dir.empty()) return open_text_coder(config.data.tokenizer_dir);
  if (!config.model.from.empty()) return open_text_coder(config.model.from);
  if (config.data.tokenizer == "byte_bpe") {
    BpeTrainer trainer({.vocab_size = config.data.vocab_size});
    for (const std::string& text : texts) trainer.add(text);
    return make_pretrained_coder(trainer.train());
  }
  if (config.data.tokenizer != "char")
    fail_user("tokenizer = \"" + config.data.tokenizer +
              "\": a language model learns \"byte_bpe\" or \"char\" itself; any other is given as tokenizer_dir");
  TokenizerOptions options;
  options.kind = config.data.tokenizer;
  options.vocab_size = config.data.vocab_size;
  return make_character_coder(train_tokenizer(options, texts));
}

}  // namespace linnet
