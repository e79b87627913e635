// Any bytes are either a tokenizer.json, a vocabulary and its merges, or a SentencePiece model, each of which then
// takes any text and gives ids of its vocabulary, or a user error of one line. The first byte says which.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "base/error.h"
#include "text/pretrained_files.h"
#include "text/sentencepiece_pretrained.h"
#include "text/tokenizer_json.h"

namespace {

using linnet::PipelineTokenizer;
using linnet::PretrainedTokenizer;

void require(bool holds) {
  if (!holds) std::abort();
}

void use(const PretrainedTokenizer& tokenizer, const std::string& text) {
  const linnet::Encoding encoding = tokenizer.encode(text, {});
  require(encoding.offsets.size() == encoding.ids.size());
  for (const linnet::TextRange& range : encoding.offsets) require(range.begin <= range.end && range.end <= text.size());
  linnet::EncodeOptions options;
  options.add_special = options.offsets = false;
  std::vector<linnet::TokenId> ids;
  tokenizer.encode(text, ids);
  require(ids == tokenizer.encode(text, options).ids);
  for (const linnet::TokenId id : ids) require(id >= 0 && id < tokenizer.vocab_size());
  tokenizer.decode(ids, false);
}

void read(char kind, const std::string& bytes) {
  const size_t half = bytes.find("\n\n");
  const std::string text = "the a\xCC\x81 \xE4\xB8\x96 \xF0\x9F\x91\x8D\r\n 12" + bytes.substr(0, 200);
  if (kind == 'j') {
    const PipelineTokenizer tokenizer(linnet::read_tokenizer_json(bytes, "fuzz"));
    use(tokenizer, text);
    const PipelineTokenizer again(linnet::read_tokenizer_json(tokenizer.to_json(), "printed"));
    std::vector<linnet::TokenId> ids, ids_again;
    static_cast<const PretrainedTokenizer&>(tokenizer).encode(text, ids);
    static_cast<const PretrainedTokenizer&>(again).encode(text, ids_again);
    require(ids == ids_again);
  } else if (kind == 'm') {
    const std::string merges = half == std::string::npos ? "" : bytes.substr(half + 2);
    use(PipelineTokenizer(linnet::read_gpt2_files(bytes.substr(0, half), "vocab", merges, "merges")), text);
  } else if (kind == 'v') {
    use(PipelineTokenizer(linnet::read_bert_vocabulary(bytes, "vocab.txt", "", "")), text);
  } else {
    use(linnet::SentencePiecePretrained(bytes, "fuzz", {}), text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    read(static_cast<char>(data[0]), std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  } catch (const linnet::Error& error) {
    if (error.kind() != linnet::ErrorKind::kUser || std::strchr(error.what(), '\n')) std::abort();
  }
  return 0;
}
