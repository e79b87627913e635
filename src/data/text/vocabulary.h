// The two-way table of a pretrained tokenizer's pieces and their ids.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "data/text/tokenizer.h"

namespace linnet {

// Eight bytes at a time: words and pieces are short, and every word of a text is hashed. Packed models hold tables that
// were made with it: another hash is another version of theirs (pipeline/tokenizer_tables.h).
inline uint64_t hash_piece(std::string_view bytes) {
  uint64_t hash = bytes.size() * 0x9e3779b97f4a7c15u;
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) {
    uint64_t part;
    std::memcpy(&part, p, 8);
    hash = (hash ^ part) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 32;
  }
  uint64_t part = 0;
  for (size_t i = 0; i < left; ++i) part |= static_cast<uint64_t>(static_cast<unsigned char>(p[i])) << (8 * i);
  hash = (hash ^ part) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 29);
}

// Internal error for an id outside [0, vocab_size).
void check_token(TokenId id, int64_t vocab_size);

class Vocabulary {
 public:
  static constexpr TokenId kMaxId = 10'000'000;
  static constexpr uint32_t kGap = UINT32_MAX;

  // The bytes of a piece in the text; begin is kGap where no piece has the id.
  struct Location {
    uint32_t begin = kGap, length = 0;
  };
  // Open addressing by hash_piece(): the id is -1 where nothing is, the tag is the upper half of the hash.
  struct Slot {
    TokenId id = -1;
    uint32_t tag = 0;
  };
  struct Tables {
    std::span<const char> text;
    std::span<const Location> locations;  // of each id
    std::span<const Slot> slots;          // none, or a power of two of which at least one is empty
  };

  Vocabulary() = default;
  // Of tables that outlive it, and that nothing is added to. They are checked, so that any bytes are safe to use: a
  // user error that begins with `where`.
  Vocabulary(const Tables& tables, const std::string& where);
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // An id that is taken by another piece, or outside 0..kMaxId, is refused with false. A piece that is there already
  // keeps its first id.
  bool add(std::string_view piece, TokenId id);

  TokenId size() const { return static_cast<TokenId>(tables_.locations.size()); }  // largest id + 1
  TokenId find(std::string_view piece) const {                                     // -1 when there is none
    if (tables_.slots.empty()) return -1;
    const uint64_t hash = hash_piece(piece);
    const size_t mask = tables_.slots.size() - 1;
    for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
      const Slot& s = tables_.slots[slot];
      if (s.id < 0) return -1;
      if (s.tag == static_cast<uint32_t>(hash >> 32) && this->piece(s.id) == piece) return s.id;
    }
  }
  bool has(TokenId id) const {
    return id >= 0 && id < size() && tables_.locations[static_cast<size_t>(id)].begin != kGap;
  }
  std::string_view piece(TokenId id) const {  // of an id in 0..size(); "" for a gap
    const Location& location = tables_.locations[static_cast<size_t>(id)];
    return location.begin == kGap ? std::string_view()
                                  : std::string_view(tables_.text.data() + location.begin, location.length);
  }
  size_t longest() const { return longest_; }  // bytes
  const Tables& tables() const { return tables_; }

 private:
  void insert(TokenId id);
  void grow();

  Tables tables_;  // the three vectors, or what the constructor was given
  std::vector<char> text_;
  std::vector<Location> locations_;
  std::vector<Slot> slots_;  // at most half full
  size_t used_ = 0, longest_ = 0;
};

}  // namespace linnet
