// What SentencePiece does to a text before it is cut: replacements, runs of spaces made one, spaces written as "▁".
#pragma once
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>
#include "data/text/byte_trie.h"
#include "data/text/sentencepiece/sentencepiece_proto.h"

namespace linnet {

// SentencePiece's table of replacements: a double-array trie (Aoe 1989) from byte strings to places in a list of texts.
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

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // "▁"

class SentencePieceNormalizer {
 public:
  // User-defined pieces are kept as they are. `file` outlives this; `path` is for messages.
  SentencePieceNormalizer(const SentencePieceModelFile::Normalization& spec, bool space_as_suffix,
                          const ByteTrie* user_defined, const std::string& path);

  // Replaces `out`. A byte that is no UTF-8 becomes U+FFFD. `sources` may be null; else it gets where each byte of
  // `out` comes from, which is the begin of what was replaced, and one more for the end.
  void apply(std::string_view text, std::string& out, std::vector<size_t>* sources) const;

 private:
  struct Prefix {
    std::string_view text;  // what the first `length` bytes become
    size_t length;
  };
  Prefix prefix_of(std::string_view text) const;
  template <bool kTracked>
  void rewrite(std::string_view text, std::string& out, std::vector<size_t>* sources) const;
  bool is_plain(std::string_view text, size_t at) const;

  CharsmapTable table_;
  const ByteTrie* user_defined_;  // null: there are none
  bool dummy_prefix_, remove_extra_, escape_, suffix_;
  std::bitset<256> plain_;  // ASCII bytes that stay as they are where an ASCII byte follows, or the end
};

}  // namespace linnet
