// SentencePiece's table of replacements: a double-array trie (Aoe 1989) from byte strings to places in a list of texts.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

class CharsmapTable {
 public:
  CharsmapTable() = default;  // no entries
  // The table as it lies in a model: the trie's size in bytes, the trie, the texts, each ended by a zero byte. A table
  // that points outside of itself is a user error, `where` is for its message.
  CharsmapTable(std::string_view table, const std::string& where);

  // What the shortest entry that `text` begins with becomes; null when none does.
  const char* shortest(std::string_view text) const { return find(text, true).text; }
  struct Entry {
    const char* text = nullptr;
    size_t length = 0;  // of what it replaces
  };
  Entry longest(std::string_view text) const { return find(text, false); }
  // Whether some entry begins with this byte and goes on with an ASCII byte or not at all.
  bool begins_ascii(unsigned char byte) const;

 private:
  Entry find(std::string_view text, bool first) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace linnet
