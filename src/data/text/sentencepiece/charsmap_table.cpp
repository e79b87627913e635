#include "data/text/sentencepiece/charsmap_table.h"
#include <cstring>
#include "base/error.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

// A unit of the trie, as darts-clone lays it out: bit 31 marks a value, bit 8 that a value hangs here, bits 10 up
// (times 256 where bit 9 is set) say where the children are, the lowest 8 bits are the byte that leads here.
bool has_leaf(uint32_t unit) { return (unit >> 8) & 1; }
uint32_t unit_value(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

}  // namespace

CharsmapTable::CharsmapTable(std::string_view table, const std::string& where) {
  uint32_t bytes = 0;
  if (table.size() < sizeof bytes) fail_user(where + " has a damaged table of replacements (too short)");
  std::memcpy(&bytes, table.data(), sizeof bytes);
  table.remove_prefix(sizeof bytes);
  if (bytes % sizeof(uint32_t) != 0 || bytes == 0 || bytes >= table.size())
    fail_user(where + " has a damaged table of replacements (its trie's size)");
  units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), table.data(), bytes);
  texts_ = table.substr(bytes);
  texts_ += '\0';
  if (invalid_utf8_at(texts_) != std::string::npos) fail_user(where + " has replacements that are not UTF-8");
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

}  // namespace linnet
