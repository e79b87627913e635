#include "text/pretrained_tokenizer.h"

#include "base/files.h"
#include "text/utf8.h"

namespace linnet {
namespace {

// Whether the text ends inside of a character, or in what decoders write in place of one that is not whole yet.
bool ends_unfinished(std::string_view text) {
  if (text.ends_with("\xEF\xBF\xBD")) return true;
  const size_t bad = invalid_utf8_at(text);
  return bad != std::string_view::npos && text.size() - bad < 4;
}

}  // namespace

void PretrainedTokenizer::save_pretrained(const std::string& folder) const {
  make_directories(folder);
  for (const auto& [name, text] : files()) write_file_atomically(folder + "/" + name, text);
}

void PretrainedTokenizer::save(const std::string& folder, const std::string& stem) const {
  save_pretrained(folder + "/" + stem);
}

std::string TextStream::push(TokenId id) {
  window_.push_back(id);
  return advance(false);
}

std::string TextStream::finish() {
  std::string text = advance(true);
  window_.clear();
  shown_ = 0;
  return text;
}

std::string TextStream::advance(bool last) {
  // Long enough for any context a decoder looks at; a window that kept growing would make a stream quadratic.
  constexpr size_t kWindow = 64, kContext = 8;
  const std::string text = tokenizer_.decode(window_, skip_special_);
  if (!last && ends_unfinished(text)) return "";
  std::string fresh = text.size() > shown_ ? text.substr(shown_) : "";
  shown_ = text.size();
  if (window_.size() >= kWindow) {
    window_.erase(window_.begin(), window_.end() - kContext);
    shown_ = tokenizer_.decode(window_, skip_special_).size();
  }
  return fresh;
}

std::vector<TextRange> code_point_offsets(std::string_view text, std::span<const TextRange> offsets) {
  std::vector<size_t> count(text.size() + 1);  // code points that begin before each byte
  size_t seen = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length_at(text, i);
    // Inside of a character: tokenizers counts a token that begins there as beginning at the character.
    for (size_t k = 0; k < length; ++k) count[i + k] = seen;
    ++seen;
    i += length;
  }
  count[text.size()] = seen;
  std::vector<TextRange> converted;
  converted.reserve(offsets.size());
  for (const TextRange& range : offsets) {
    // An end inside of a character counts that character.
    const bool inside = range.end > range.begin && range.end < text.size() && count[range.end] == count[range.end - 1];
    converted.push_back({count[range.begin], count[range.end] + (inside ? 1 : 0)});
  }
  return converted;
}

}  // namespace linnet
