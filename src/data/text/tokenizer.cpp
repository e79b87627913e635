#include "data/text/tokenizer.h"
#include "base/error.h"
#include "base/files.h"
#include "data/text/pretrained_tokenizer.h"
#include "data/text/sentencepiece/saved_sentencepiece.h"
#include "data/text/sentencepiece/sentencepiece_seal.h"
#include "data/text/vocabulary_tokenizer.h"

namespace linnet {
namespace {

constexpr const char* kExtensions[] = {"char", "word", "model"};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& folder, const std::string& stem) {
  if (file_exists(folder + "/" + stem + "/tokenizer_config.json"))  // a pretrained one's folder
    return load_pretrained_tokenizer(folder + "/" + stem);
  std::string extension;
  for (const char* candidate : kExtensions) {
    if (!file_exists(folder + "/" + stem + "." + candidate)) continue;
    if (!extension.empty())
      fail_user("'" + folder + "' holds two tokenizers for '" + stem + "': ." + extension + " and ." + candidate);
    extension = candidate;
  }
  if (extension.empty()) fail_user("no tokenizer '" + stem + "' in '" + folder + "' (neither .char, .word nor .model)");
  const std::string path = folder + "/" + stem + "." + extension;
  const std::string bytes = read_file(path);
  if (extension == "model") return std::make_unique<SavedSentencePiece>(open_sentencepiece_model(bytes, path), path);
  return parse_vocabulary(extension == "char" ? TextUnit::kCharacter : TextUnit::kWord, bytes, path);
}

}  // namespace linnet
