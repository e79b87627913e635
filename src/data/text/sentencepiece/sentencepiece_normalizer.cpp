#include "data/text/sentencepiece/sentencepiece_normalizer.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

}  // namespace

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceModelFile::Normalization& spec,
                                                 bool space_as_suffix, const ByteTrie* user_defined,
                                                 const std::string& path)
    : user_defined_(user_defined),
      dummy_prefix_(spec.dummy_prefix),
      remove_extra_(spec.remove_extra_spaces),
      escape_(spec.escape_spaces),
      suffix_(space_as_suffix) {
  if (!spec.charsmap.empty()) table_ = CharsmapTable(spec.charsmap, "'" + path + "'");
  for (size_t c = 0; c < 128; ++c) {
    const auto byte = static_cast<unsigned char>(c);
    const bool begins_user_defined = user_defined && user_defined->next(ByteTrie::kRoot, byte) != ByteTrie::kNowhere;
    plain_[c] = !begins_user_defined && !table_.begins_ascii(byte);
  }
}

void SentencePieceNormalizer::apply(std::string_view text, std::string& out, std::vector<size_t>* sources) const {
  out.clear();
  if (!sources) return rewrite<false>(text, out, nullptr);
  sources->clear();
  rewrite<true>(text, out, sources);
}

bool SentencePieceNormalizer::is_plain(std::string_view text, size_t at) const {
  return plain_[static_cast<unsigned char>(text[at])] && (at + 1 == text.size() || is_ascii(text[at + 1]));
}

SentencePieceNormalizer::Prefix SentencePieceNormalizer::prefix_of(std::string_view text) const {
  if (is_plain(text, 0)) return {text.substr(0, 1), 1};
  if (user_defined_)
    if (const size_t length = user_defined_->longest_prefix(text); length > 0) return {text.substr(0, length), length};
  if (const CharsmapTable::Entry entry = table_.longest(text); entry.text) return {entry.text, entry.length};
  const size_t length = utf8_length_at(text, 0);
  if (length == 1 && !is_ascii(text[0])) return {kReplacementCharacter, 1};
  return {text.substr(0, length), length};
}

template <bool kTracked>
void SentencePieceNormalizer::rewrite(std::string_view text, std::string& out, std::vector<size_t>* sources) const {
  size_t at = 0;
  while (remove_extra_ && at < text.size()) {
    const Prefix prefix = prefix_of(text.substr(at));
    if (prefix.text != " ") break;
    at += prefix.length;
  }
  if (at == text.size()) return;

  const auto put = [&](std::string_view bytes) {
    out += bytes;
    if constexpr (kTracked) sources->insert(sources->end(), bytes.size(), at);
  };
  const std::string_view space = escape_ ? kSpaceSymbol : std::string_view(" ");
  if (!suffix_ && dummy_prefix_) put(space);
  bool after_space = remove_extra_;  // where further spaces are left out
  while (at < text.size()) {
    // Most text is letters that nothing happens to.
    size_t end = at;
    while (end < text.size() && text[end] != ' ' && is_plain(text, end)) ++end;
    if (end > at) {
      out += text.substr(at, end - at);
      if constexpr (kTracked)
        for (size_t i = at; i < end; ++i) sources->push_back(i);
      at = end;
      after_space = false;
      continue;
    }
    const Prefix prefix = prefix_of(text.substr(at));
    std::string_view bytes = prefix.text;
    if (after_space)
      while (bytes.starts_with(' ')) bytes.remove_prefix(1);
    if (!bytes.empty()) {
      after_space = bytes.ends_with(' ');
      for (size_t begin = 0; begin < bytes.size();) {
        const size_t blank = escape_ ? std::min(bytes.find(' ', begin), bytes.size()) : bytes.size();
        put(bytes.substr(begin, blank - begin));
        if (blank < bytes.size()) put(kSpaceSymbol);
        begin = blank + 1;
      }
    }
    if (!remove_extra_) after_space = false;
    at += prefix.length;
  }
  // The spaces at the end are as if they had not been there.
  while (remove_extra_ && std::string_view(out).ends_with(space)) {
    out.resize(out.size() - space.size());
    if constexpr (kTracked) at = (*sources)[out.size()], sources->resize(out.size());
  }
  if (suffix_ && dummy_prefix_) put(space);
  if constexpr (kTracked) sources->push_back(at);
}

}  // namespace linnet
