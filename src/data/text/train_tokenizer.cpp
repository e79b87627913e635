#include "base/error.h"
#include "data/text/sentencepiece/sentencepiece_trainer.h"
#include "data/text/tokenizer.h"
#include "data/text/trained_tokenizers.h"

namespace linnet {

std::unique_ptr<Tokenizer> train_tokenizer(const TokenizerOptions& options, const std::vector<std::string>& lines) {
  if (options.kind == "char") return train_vocabulary(TextUnit::kCharacter, options.vocab_size, lines);
  if (options.kind == "word") return train_vocabulary(TextUnit::kWord, options.vocab_size, lines);
  if (options.kind == "sentencepiece")
    return make_sentencepiece_tokenizer(train_sentencepiece(options, lines), "(just trained)");
  if (options.kind == "byte_bpe") fail_user("tokenizer = \"byte_bpe\" is for language models alone");
  fail_user("unknown tokenizer '" + options.kind + "' (char, word or sentencepiece)");
}

}  // namespace linnet
