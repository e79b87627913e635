#include "data/text/pretrained_tokenizer.h"
#include <algorithm>
#include "base/files.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // decoders write it in place of bytes that are no character

// The window grows to kWindow tokens and is then cut to about its last kContext: a decoder looks at fewer, and a
// growing window would make a stream quadratic.
constexpr size_t kWindow = 64, kContext = 8;
}  // namespace

size_t whole_size(std::string_view text) {
  for (size_t i = text.size() - std::min<size_t>(text.size(), 3); i < text.size(); ++i)
    if ((text[i] & 0xC0) == 0xC0 && utf8_length_at(text, i) == 1 &&
        std::ranges::all_of(text.substr(i + 1), [](char byte) { return (byte & 0xC0) == 0x80; }))
      text = text.substr(0, i);
  while (text.ends_with(kReplacement)) text.remove_suffix(kReplacement.size());
  return text.size();
}

void PretrainedTokenizer::save_pretrained(const std::string& folder) const {
  const OutputFolder made(folder);
  for (const auto& [name, text] : files()) write_file_atomically(folder + "/" + name, text);
}

TextStream::TextStream(const PretrainedTokenizer& tokenizer, bool skip_special, std::span<const TokenId> context)
    : tokenizer_(tokenizer), skip_special_(skip_special) {
  for (size_t i = context.size(); i > 0 && window_.size() < kWindow; --i)
    if (!skip_special_ || !tokenizer_.is_special(context[i - 1])) window_.push_back(context[i - 1]);
  std::reverse(window_.begin(), window_.end());
  shorten_window();
}

std::string TextStream::push(TokenId id) {
  if (skip_special_ && tokenizer_.is_special(id)) return "";
  window_.push_back(id);
  return advance(false);
}

std::string TextStream::finish() {
  std::string text = advance(true);
  window_.clear();
  shown_.clear();
  return text;
}

std::string TextStream::advance(bool last) {
  const std::string text = tokenizer_.decode(window_, skip_special_);
  if (!last && whole_size(text) < text.size()) return "";
  size_t begin = shown_.size();
  // A run of byte tokens that turns out invalid is U+FFFD for each byte, also for those that were characters.
  if (!text.starts_with(shown_)) {
    begin = 0;
    for (size_t left = count_code_points(shown_); left > 0 && begin < text.size(); --left)
      begin += utf8_length_at(text, begin);
  }
  std::string fresh = text.substr(std::min(begin, text.size()));
  shown_ = text;
  if (window_.size() >= kWindow) shorten_window();
  return fresh;
}

// The window must not begin inside a character, whose bytes would then change those that follow.
void TextStream::shorten_window() {
  for (size_t count = std::min(kContext, window_.size()); count <= window_.size(); ++count) {
    const std::span<const TokenId> kept = std::span(window_).last(count);
    const std::string text = tokenizer_.decode(kept, skip_special_);
    const bool broken = text.starts_with(kReplacement) || (!text.empty() && (text[0] & 0xC0) == 0x80);
    if (broken && count < window_.size()) continue;
    shown_ = text.substr(0, whole_size(text));
    window_.erase(window_.begin(), window_.end() - count);
    return;
  }
}

std::vector<TextRange> code_point_offsets(std::string_view text, std::span<const TextRange> offsets) {
  std::vector<size_t> count(text.size() + 1);  // code points that begin before each byte
  size_t seen = 0;
  for (const Utf8Character& character : utf8_characters(text)) {
    // For tokenizers, a token that begins inside a character begins at the character.
    for (size_t i = character.begin; i < character.end; ++i) count[i] = seen;
    ++seen;
  }
  count[text.size()] = seen;
  std::vector<TextRange> converted;
  converted.reserve(offsets.size());
  for (const TextRange& range : offsets) {
    // An end inside a character includes it.
    const bool inside = range.end > range.begin && range.end < text.size() && count[range.end] == count[range.end - 1];
    converted.push_back({count[range.begin], count[range.end] + (inside ? 1 : 0)});
  }
  return converted;
}
}  // namespace linnet
