// Stores a tokenizer as tables that are used in place, so that opening a packed model parses no vocabulary. They are
// made of tokenizer.json or older files (tokenizer_json.h), give the same tokens, and lie beside those files as
// kTokenizerTables (base/files.h).
//
//   16 bytes  "linnet.tokenizer"
//   u64       the version
//   u64 x 2   of each TokenizerTable in order: offset and bytes; an offset is a multiple of 16
//   data      little endian, as the structs they are read as
//
// kSettings is tokenizer.json without the model's vocabulary and merges: a few thousand bytes to parse.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include "data/text/pipeline/tokenizer_json.h"

namespace linnet {
constexpr size_t kTokenizerTableAlignment = 16;

enum class TokenizerTable {
  kSettings,
  kText,       // Vocabulary::Tables
  kLocations,  // Vocabulary::Location
  kSlots,      // Vocabulary::Slot
  kPairs,      // of BpeModel
  kMerges,     // two TokenId each
  kWrittenScores,
  kScores,  // double, of UnigramModel
  kTrie,    // ByteTrie::Unit
  kCount
};

class TokenizerTables {
 public:
  // User error naming `path` for another kind of file. Copies the bytes: a file truncated while mapped reads as zeros
  // (base/files.h), and a tokenizer that follows them never ends.
  TokenizerTables(std::string_view bytes, const std::string& path);

  // User error if the bytes are not a whole number of them.
  template <class T> std::span<const T> table(TokenizerTable table) const {
    const std::string_view bytes = bytes_of(table);
    if (bytes.size() % sizeof(T) != 0) fail("a table ends within an entry");
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  Vocabulary vocabulary() const;
  const std::shared_ptr<const void>& owner() const { return owner_; }
  const std::string& where() const { return where_; }  // begins messages: "'a.linnet/tokenizer.tables'"
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  std::string_view bytes_of(TokenizerTable table) const { return tables_[static_cast<size_t>(table)]; }

  std::string where_;
  std::shared_ptr<const void> owner_;
  std::array<std::string_view, static_cast<size_t>(TokenizerTable::kCount)> tables_;
};

class TokenizerTableWriter {
 public:
  template <class T> void set(TokenizerTable table, std::span<const T> entries) {
    tables_[static_cast<size_t>(table)].assign(reinterpret_cast<const char*>(entries.data()), entries.size_bytes());
  }
  void set(const Vocabulary& vocabulary);
  std::string bytes() const;  // a multiple of 16

 private:
  std::array<std::string, static_cast<size_t>(TokenizerTable::kCount)> tables_;
};

std::string format_tokenizer_tables(const PipelineTokenizer& tokenizer);
// The pipeline's model keeps `owner` while it uses the tables.
Pipeline read_tokenizer_tables(std::string_view bytes, const std::string& path);
}  // namespace linnet
