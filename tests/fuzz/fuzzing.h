// What the fuzz targets share. A target ends the process where a promise is broken; the sanitizers watch the rest.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include "base/error.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet::fuzzing {
constexpr const char* kName = "fuzz";  // begins the paths of a target's inputs: every message has to name one

inline void require(bool holds) {
  if (!holds) std::abort();
}

// Either the action succeeds, or it is a user error of one line that names a file.
template <typename Action> void only_user_errors(Action action) {
  try {
    action();
  } catch (const Error& error) {
    const bool is_one_line = std::strchr(error.what(), '\n') == nullptr;
    if (error.kind() == ErrorKind::kUser && is_one_line && std::strstr(error.what(), kName)) return;
    std::fprintf(stderr, "no user error of one line that names a file: %s\n", error.what());
    std::abort();
  }
}

inline std::string as_text(const uint8_t* data, size_t size) {
  return std::string(reinterpret_cast<const char*>(data), size);
}

// Two files in one input: what is before the first empty line, and what is behind it.
struct TwoFiles {
  std::string first, second;
};
inline TwoFiles two_files(const std::string& bytes) {
  const size_t half = bytes.find("\n\n");
  if (half == std::string::npos) return {bytes, ""};
  return {bytes.substr(0, half), bytes.substr(half + 2)};
}

// Some text of every kind, and some of the file itself, so that its own pieces occur.
inline std::string text_with(const std::string& file) {
  return "the a\xCC\x81 \xE4\xB8\x96 \xF0\x9F\x91\x8D\r\n 12\xFF\t " + file.substr(0, 200);
}

inline std::vector<TokenId> ids_of(const PretrainedTokenizer& tokenizer, const std::string& text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, ids);
  return ids;
}

// A tokenizer that was read takes any text, gives ids of its vocabulary and ranges of the text, and takes them back.
inline void use(const PretrainedTokenizer& tokenizer, const std::string& text) {
  const Encoding encoding = tokenizer.encode(text, {});
  require(encoding.offsets.size() == encoding.ids.size());
  for (const TextRange& range : encoding.offsets) require(range.begin <= range.end && range.end <= text.size());
  EncodeOptions options;
  options.add_special = options.offsets = false;
  const std::vector<TokenId> ids = ids_of(tokenizer, text);
  require(ids == tokenizer.encode(text, options).ids);
  for (const TokenId id : ids) {
    require(id >= 0 && id < tokenizer.vocab_size());
    tokenizer.piece(id);
  }
  tokenizer.decode(ids, false);
  tokenizer.decode(ids, true);
}
}  // namespace linnet::fuzzing
