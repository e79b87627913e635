// A trie over byte strings as a double array (Aoe 1989): reads one unit of 8 bytes per byte of text.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "data/text/unicode/utf8.h"

namespace linnet {
class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0, kNowhere = UINT32_MAX;
  static constexpr int32_t kNoValue = 0xFFFFFF;

  // Skips empty and repeated keys. Values are from 0 to kNoValue - 1; all keys together have less than 2^30 bytes.
  using Keys = std::vector<std::pair<std::string_view, int32_t>>;
  explicit ByteTrie(Keys keys = {});

  // A node's children are at base ^ byte. No two nodes have the same base, so the byte identifies the parent of a unit;
  // an unused unit has a byte that would need an unused base. Packed models store units as they are here.
  struct Unit {
    uint32_t base = 0;
    uint32_t label : 8 = 0;
    uint32_t value : 24 = kNoValue;
  };
  // Uses `units`, which must outlive it; values are below `values`. Checked, so that any bytes are safe: a user error
  // that begins with `where`.
  ByteTrie(std::span<const Unit> units, int32_t values, const std::string& where);
  ByteTrie(ByteTrie&&) = default;
  ByteTrie& operator=(ByteTrie&&) = default;
  std::span<const Unit> units() const { return units_; }

  uint32_t next(uint32_t node, unsigned char byte) const {
    const uint32_t location = units_[node].base ^ byte;
    return units_[location].label == byte ? location : kNowhere;
  }
  // The value of the key that ends at this node, or kNoValue.
  int32_t value(uint32_t node) const { return static_cast<int32_t>(units_[node].value); }
  // Calls visit(length, value) for every key that is a prefix of `text`, shortest first.
  template <class Visit> void visit_prefixes(std::string_view text, const Visit& visit) const {
    uint32_t node = kRoot;
    for (size_t i = 0; i < text.size(); ++i) {
      node = next(node, static_cast<unsigned char>(text[i]));
      if (node == kNowhere) return;
      if (value(node) != kNoValue) visit(i + 1, value(node));
    }
  }
  // The bytes of the longest key that is a prefix of `text`, or 0.
  size_t longest_prefix(std::string_view text) const {
    size_t longest = 0;
    visit_prefixes(text, [&](size_t length, int32_t) { longest = length; });
    return longest;
  }
  // Calls visit(begin, end, value) for every key in `text` that begins at a character, left to right, shortest first;
  // with -1 for a character that is no key.
  template <class Visit> void visit_keys(std::string_view text, const Visit& visit) const {
    for (size_t begin = 0; begin < text.size();) {
      const size_t length = utf8_length_at(text, begin);
      bool single = false;  // the character by itself is a key
      visit_prefixes(text.substr(begin), [&](size_t bytes, int32_t value) {
        visit(begin, begin + bytes, value);
        single = single || bytes == length;
      });
      if (!single) visit(begin, begin + length, -1);
      begin += length;
    }
  }

 private:
  class Builder;
  std::vector<Unit> own_units_;
  std::span<const Unit> units_;  // own_units_, or what the constructor was given
};
}  // namespace linnet
