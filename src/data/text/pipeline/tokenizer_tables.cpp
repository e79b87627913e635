#include "data/text/pipeline/tokenizer_tables.h"
#include <cstring>
#include "base/fail.h"
#include "base/numbers.h"
#include "data/text/byte_trie.h"

namespace linnet {
namespace {
constexpr std::string_view kMagic = "linnet.tokenizer";
constexpr uint64_t kVersion = 1;
constexpr size_t kTables = static_cast<size_t>(TokenizerTable::kCount);

struct Head {
  char magic[kMagic.size()];
  uint64_t version;
  struct {
    uint64_t offset, bytes;
  } tables[kTables];
};
static_assert(sizeof(Vocabulary::Location) == 8 && sizeof(Vocabulary::Slot) == 8 && sizeof(ByteTrie::Unit) == 8);
}  // namespace

TokenizerTables::TokenizerTables(std::string_view bytes, const std::string& path) : where_("'" + path + "'") {
  static_assert(alignof(std::max_align_t) % kTokenizerTableAlignment == 0);
  const auto copy = std::make_shared<std::vector<std::max_align_t>>(bytes.size() / sizeof(std::max_align_t) + 1);
  std::memcpy(copy->data(), bytes.data(), bytes.size());
  bytes = {reinterpret_cast<const char*>(copy->data()), bytes.size()};
  owner_ = copy;
  Head head;
  if (bytes.size() < sizeof head || !bytes.starts_with(kMagic)) fail("it holds no tables of a tokenizer");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.version != kVersion) fail("its version is " + std::to_string(head.version));
  for (size_t i = 0; i < kTables; ++i) {
    const auto& [offset, size] = head.tables[i];
    if (offset % kTokenizerTableAlignment != 0 || offset > bytes.size() || size > bytes.size() - offset)
      fail("a table lies outside of the file");
    tables_[i] = bytes.substr(offset, size);
  }
}

Vocabulary TokenizerTables::vocabulary() const {
  return Vocabulary({.text = table<char>(TokenizerTable::kText),
                        .locations = table<Vocabulary::Location>(TokenizerTable::kLocations),
                        .slots = table<Vocabulary::Slot>(TokenizerTable::kSlots)},
      where_);
}

void TokenizerTables::fail(const std::string& problem) const { fail_user(where_, " is damaged: ", problem); }

void TokenizerTableWriter::set(const Vocabulary& vocabulary) {
  set(TokenizerTable::kText, vocabulary.tables().text);
  set(TokenizerTable::kLocations, vocabulary.tables().locations);
  set(TokenizerTable::kSlots, vocabulary.tables().slots);
}

std::string TokenizerTableWriter::bytes() const {
  Head head{.magic = {}, .version = kVersion, .tables = {}};
  std::memcpy(head.magic, kMagic.data(), kMagic.size());
  size_t end = round_up(sizeof head, kTokenizerTableAlignment);
  for (size_t i = 0; i < kTables; ++i) {
    head.tables[i] = {end, tables_[i].size()};
    end = round_up(end + tables_[i].size(), kTokenizerTableAlignment);
  }
  std::string bytes(end, '\0');
  std::memcpy(bytes.data(), &head, sizeof head);
  for (size_t i = 0; i < kTables; ++i)
    std::memcpy(bytes.data() + head.tables[i].offset, tables_[i].data(), tables_[i].size());
  return bytes;
}

std::string format_tokenizer_tables(const PipelineTokenizer& tokenizer) {
  const SubwordModel& model = tokenizer.model();
  TokenizerTableWriter tables;
  tables.set<char>(TokenizerTable::kSettings, tokenizer.to_json(model.settings().dump()));
  tables.set(model.vocabulary());
  model.add_tables(tables);
  return tables.bytes();
}

Pipeline read_tokenizer_tables(std::string_view bytes, const std::string& path) {
  const TokenizerTables tables(bytes, path);
  const std::span<const char> settings = tables.table<char>(TokenizerTable::kSettings);
  return read_tokenizer_json({settings.data(), settings.size()}, path, &tables);
}
}  // namespace linnet
