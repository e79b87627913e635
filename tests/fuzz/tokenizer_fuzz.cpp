// Any bytes are either a tokenizer file that survives its own printing and takes any line, or a user error of one line.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>
#include "base/error.h"
#include "data/text/trained_tokenizers.h"

namespace {
template <typename Action> void only_user_errors(Action action) {
  try {
    action();
  } catch (const linnet::Error& error) {
    if (error.kind() != linnet::ErrorKind::kUser || std::strchr(error.what(), '\n')) std::abort();
  }
}

void require(bool holds) {
  if (!holds) std::abort();
}

void check_vocabulary(linnet::TextUnit unit, const std::string& bytes) {
  const std::unique_ptr<linnet::Tokenizer> tokenizer = linnet::parse_vocabulary(unit, bytes, "fuzz");
  std::vector<std::string> tokens;
  for (linnet::TokenId id = linnet::kSpecialTokenCount; id < tokenizer->vocab_size(); ++id)
    tokens.push_back(tokenizer->piece(id));
  const auto again = linnet::parse_vocabulary(unit, linnet::format_vocabulary(unit, tokens), "printed");
  require(again->vocab_size() == tokenizer->vocab_size());
  // The whole file as one line of text: every token of it is known, and what is decoded is encoded alike.
  std::vector<linnet::TokenId> ids, ids_again;
  tokenizer->encode(bytes, ids);
  for (const linnet::TokenId id : ids) require(id >= 0 && id < tokenizer->vocab_size());
  again->encode(bytes, ids_again);
  require(ids == ids_again);
  tokenizer->decode(ids);
  for (size_t i = 0; i < tokens.size(); ++i) {
    ids.clear();
    tokenizer->encode(tokens[i], ids);
    require(ids.size() == 1 && ids[0] == linnet::kSpecialTokenCount + static_cast<linnet::TokenId>(i));
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  // The fuzzer rarely counts the lines right: the same tokens under a first line that fits them, too.
  size_t lines = 0;
  for (const char c : bytes) lines += c == '\n';
  const std::string counted = " " + std::to_string(lines) + "\n" + bytes;
  only_user_errors([&] { check_vocabulary(linnet::TextUnit::kCharacter, bytes); });
  only_user_errors([&] { check_vocabulary(linnet::TextUnit::kCharacter, "linnet-tokenizer 1 char" + counted); });
  only_user_errors([&] { check_vocabulary(linnet::TextUnit::kWord, bytes); });
  only_user_errors([&] { check_vocabulary(linnet::TextUnit::kWord, "linnet-tokenizer 1 word" + counted); });
  // Only what was sealed is opened again, and then it is what was sealed.
  only_user_errors([&] { linnet::open_sentencepiece_model(bytes, "fuzz"); });
  if (!bytes.empty())
    require(linnet::open_sentencepiece_model(linnet::seal_sentencepiece_model(bytes), "sealed") == bytes);
  return 0;
}
