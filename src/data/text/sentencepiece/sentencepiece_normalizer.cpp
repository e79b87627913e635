#include "data/text/sentencepiece/sentencepiece_normalizer.h"
#include <cstring>
#include "base/fail.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

// A unit of the trie, as darts-clone lays it out: bit 31 marks a value, bit 8 that a value hangs here, bits 10 up
// (times 256 where bit 9 is set) say where the children are, the lowest 8 bits are the byte that leads here.
bool has_leaf(uint32_t unit) { return (unit >> 8) & 1; }
uint32_t unit_value(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

}  // namespace

CharsmapTable::CharsmapTable(std::string_view table, const std::string& where) {
  uint32_t bytes = 0;
  if (table.size() < sizeof bytes) fail_user(where, " has a damaged table of replacements (too short)");
  std::memcpy(&bytes, table.data(), sizeof bytes);
  table.remove_prefix(sizeof bytes);
  if (bytes % sizeof(uint32_t) != 0 || bytes == 0 || bytes >= table.size())
    fail_user(where, " has a damaged table of replacements (its trie's size)");
  units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), table.data(), bytes);
  texts_ = table.substr(bytes);
  texts_ += '\0';
  if (invalid_utf8_at(texts_) != std::string::npos) fail_user(where, " has replacements that are not UTF-8");
}

// Common-prefix search; every step is checked against the table's ends.
CharsmapTable::Entry CharsmapTable::find(std::string_view text, bool first) const {
  Entry entry;
  if (units_.empty()) return entry;
  size_t location = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    location ^= byte;
    if (location >= units_.size() || label_of(units_[location]) != byte) break;
    const uint32_t unit = units_[location];
    location ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (location >= units_.size() || unit_value(units_[location]) >= texts_.size()) break;
    entry = {texts_.data() + unit_value(units_[location]), i + 1};
    if (first) break;
  }
  return entry;
}

bool CharsmapTable::begins_ascii(unsigned char byte) const {
  if (units_.empty()) return false;
  size_t location = offset_of(units_[0]) ^ byte;
  if (location >= units_.size() || label_of(units_[location]) != byte) return false;
  if (has_leaf(units_[location])) return true;
  location ^= offset_of(units_[location]);
  for (size_t next = 0; next < 0x80; ++next)
    if ((location ^ next) < units_.size() && label_of(units_[location ^ next]) == next) return true;
  return false;
}

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
