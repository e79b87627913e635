// Decoders by their names in tokenizer.json.
#include "base/text.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
using Tokens = std::vector<std::string>;

// Reads GPT-2's spelling of bytes; a token with other characters stays as it is.
void decode_byte_level(Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens)
    if (!read_spelling(token, text)) text += token;
  tokens = {std::move(text)};
}

// Puts a space before each token except the first and those that continue a word; `cleanup` removes spaces before
// punctuation and English contractions.
void decode_wordpiece(const std::string& prefix, bool cleanup, Tokens& tokens) {
  constexpr std::string_view kCleanups[][2] = {{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string& token = tokens[i];
    if (i > 0 && token.starts_with(prefix)) token.erase(0, prefix.size());
    else if (i > 0) token.insert(0, " ");
    if (!cleanup) continue;
    for (const auto& [from, to] : kCleanups) replace_all(token, from, to);
  }
}

// Turns runs of <0xE2> into the characters they encode, or U+FFFD for each byte if invalid.
void decode_byte_fallback(Tokens& tokens) {
  Tokens result;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (invalid_utf8_at(bytes) == std::string::npos) result.push_back(bytes);
    else result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const int byte = fallback_byte(token); byte >= 0) {
      bytes += static_cast<char>(byte);
      continue;
    }
    flush();
    result.push_back(std::move(token));
  }
  flush();
  tokens = std::move(result);
}

// Removes `content` up to `start` times from the front of each token, up to `stop` times from its end.
void strip(const std::string& content, int64_t start, int64_t stop, Tokens& tokens) {
  if (content.empty()) return;
  for (std::string& token : tokens) {
    for (int64_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
    for (int64_t i = 0; i < stop && token.ends_with(content); ++i) token.resize(token.size() - content.size());
  }
}

TokenDecoder read_decoding_step(const JsonObject& json, const std::string& type) {
  if (type == "ByteLevel") return decode_byte_level;
  if (type == "WordPiece")
    return [prefix = json.text("prefix", "##"), cleanup = json.flag("cleanup", true)](
               Tokens& tokens) { decode_wordpiece(prefix, cleanup, tokens); };
  if (type == "Metaspace")  // "▁" becomes a space, or nothing in the first token when one was put before the text
    return [how = read_metaspace(json)](Tokens& tokens) {
      for (size_t i = 0; i < tokens.size(); ++i)
        replace_all(tokens[i], how.replacement, i == 0 && how.prepends != Metaspace::kNever ? "" : " ");
    };
  if (type == "Replace") {
    const JsonObject pattern = json.object("pattern");
    if (!pattern.has("String")) pattern.fail("is not a String, which is all that Linnet replaces in decoding");
    return [from = pattern.text("String"), to = json.text("content")](Tokens& tokens) {
      for (std::string& token : tokens) replace_all(token, from, to);
    };
  }
  if (type == "ByteFallback") return decode_byte_fallback;
  if (type == "Fuse") return [](Tokens& tokens) { tokens = {joined(tokens, "")}; };
  if (type == "Strip") {
    const int64_t start = json.integer("start", 0), stop = json.integer("stop", 0);
    if (start < 0 || stop < 0) json.fail("strips less than nothing");
    return [content = json.text("content"), start, stop](Tokens& tokens) { strip(content, start, stop, tokens); };
  }
  if (type == "BPEDecoder")  // the suffix that ends a word becomes a space, or nothing in the last token
    return [suffix = json.text("suffix", "</w>")](Tokens& tokens) {
      for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
    };
  fail_unknown(json, "type", type);
}
}  // namespace

void read_decoder(const JsonObject& json, std::vector<TokenDecoder>& steps) {
  const std::string type = json.text("type");
  if (type != "Sequence") return steps.push_back(read_decoding_step(json, type));
  for (const JsonObject& step : json.objects("decoders")) read_decoder(step, steps);
}
}  // namespace linnet
