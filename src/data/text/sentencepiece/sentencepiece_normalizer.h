// What SentencePiece does to a text before it is cut: replacements, runs of spaces made one, spaces written as "▁".
#pragma once
#include <bitset>
#include <string>
#include <string_view>
#include <vector>
#include "data/text/byte_trie.h"
#include "data/text/sentencepiece/charsmap_table.h"
#include "data/text/sentencepiece/sentencepiece_proto.h"

namespace linnet {

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
