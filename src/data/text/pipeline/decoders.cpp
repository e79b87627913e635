#include "data/text/pipeline/decoders.h"
#include "base/text.h"
#include "data/text/bpe/byte_alphabet.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = hex_digit(token[3]), low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : 16 * high + low;
}

void ByteLevelDecoder::apply(std::vector<std::string>& tokens) const {
  std::string text;
  for (const std::string& token : tokens)
    if (!read_spelling(token, text)) text += token;
  tokens = {std::move(text)};
}

void WordPieceDecoder::apply(std::vector<std::string>& tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string& token = tokens[i];
    if (i > 0) {
      if (token.starts_with(prefix_)) token.erase(0, prefix_.size());
      else token.insert(0, " ");
    }
    if (!cleanup_) continue;
    constexpr std::string_view kCleanups[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                                 {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                                 {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kCleanups) replace_all(token, from, to);
  }
}

void MetaspaceDecoder::apply(std::vector<std::string>& tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], replacement_, i == 0 && prepended_ ? "" : " ");
}

void ReplaceDecoder::apply(std::vector<std::string>& tokens) const {
  for (std::string& token : tokens) replace_all(token, from_, to_);
}

void ByteFallbackDecoder::apply(std::vector<std::string>& tokens) const {
  std::vector<std::string> result;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (invalid_utf8_at(bytes) == std::string::npos) {
      result.push_back(bytes);
    } else {
      for (size_t i = 0; i < bytes.size(); ++i) result.emplace_back("\xEF\xBF\xBD");
    }
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

void FuseDecoder::apply(std::vector<std::string>& tokens) const { tokens = {joined(tokens, "")}; }

void StripDecoder::apply(std::vector<std::string>& tokens) const {
  if (content_.empty()) return;
  for (std::string& token : tokens) {
    for (size_t i = 0; i < start_ && token.starts_with(content_); ++i) token.erase(0, content_.size());
    for (size_t i = 0; i < stop_ && token.ends_with(content_); ++i) token.resize(token.size() - content_.size());
  }
}

void BpeDecoder::apply(std::vector<std::string>& tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
}

}  // namespace linnet
