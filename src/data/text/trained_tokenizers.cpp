#include "data/text/trained_tokenizers.h"
#include <algorithm>
#include <unordered_set>
#include "base/fail.h"
#include "base/files.h"
#include "base/functions.h"
#include "base/numbers.h"
#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
constexpr const char* kSpecialPieces[] = {"<pad>", "<unk>", "<s>", "</s>"};

std::string name_of(TextUnit unit) { return unit == TextUnit::kCharacter ? "char" : "word"; }

std::vector<std::string_view> split_units(TextUnit unit, std::string_view line) {
  return unit == TextUnit::kCharacter ? split_code_points(line) : split_white_space(line);
}

// The letter behind a backslash, and at the same index the byte it stands for.
constexpr std::string_view kEscapeLetters = "\\nrts", kEscapedBytes = "\\\n\r\t ";

std::string escape(std::string_view token) {
  std::string text;
  for (const char c : token) {
    const size_t found = kEscapedBytes.find(c);
    if (found == kEscapedBytes.npos) text += c;
    else (text += '\\') += kEscapeLetters[found];
  }
  return text;
}

// False if a backslash precedes any other character.
bool unescape(std::string_view text, std::string& token) {
  token.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      token += text[i];
      continue;
    }
    const size_t found = ++i == text.size() ? kEscapeLetters.npos : kEscapeLetters.find(text[i]);
    if (found == kEscapeLetters.npos) return false;
    token += kEscapedBytes[found];
  }
  return true;
}

class VocabularyTokenizer : public Tokenizer {
 public:
  VocabularyTokenizer(TextUnit unit, std::vector<std::string> tokens) : unit_(unit), tokens_(std::move(tokens)) {
    ids_.reserve(tokens_.size());
    for (size_t i = 0; i < tokens_.size(); ++i) ids_.emplace(tokens_[i], kSpecialTokenCount + static_cast<TokenId>(i));
  }

  std::string kind() const override { return name_of(unit_); }
  int64_t vocab_size() const override { return kSpecialTokenCount + std::ssize(tokens_); }
  void encode(std::string_view line, std::vector<TokenId>& ids) const override {
    for (const std::string_view unit : split_units(unit_, line)) ids.push_back(find_or(ids_, unit, special().unknown));
  }
  std::string decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (id == special().pad || id == special().begin || id == special().end) continue;
      if (unit_ == TextUnit::kWord && !text.empty()) text += ' ';
      text += id == special().unknown && unit_ == TextUnit::kCharacter ? to_utf8(0xFFFD) : piece(id);
    }
    return text;
  }
  std::string piece(TokenId id) const override {
    check_token(id, vocab_size());
    return id < kSpecialTokenCount ? kSpecialPieces[id] : tokens_[id - kSpecialTokenCount];
  }
  void save(const std::string& folder, const std::string& stem) const override {
    write_file_atomically(folder + "/" + stem + "." + name_of(unit_), format_vocabulary(unit_, tokens_));
  }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;  // look up a view without making a string of it
  };

  TextUnit unit_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
};

class SavedSentencePiece : public Tokenizer {
 public:
  SavedSentencePiece(std::string model, const std::string& path)
      : model_(std::move(model)), tokenizer_(model_, path, SentencePieceOptions{}) {
    const SpecialTokens ids = special(), own = tokenizer_.special();
    if (own.pad != ids.pad || own.unknown != ids.unknown || own.begin != ids.begin || own.end != ids.end)
      fail_user("tokenizer file '", path, "' has other ids than 0, 1, 2, 3 for its special tokens");
  }

  std::string kind() const override { return "sentencepiece"; }
  int64_t vocab_size() const override { return tokenizer_.vocab_size(); }
  void encode(std::string_view line, std::vector<TokenId>& ids) const override { tokenizer_.encode(line, ids); }
  std::string decode(std::span<const TokenId> ids) const override {
    for (const TokenId id : ids) check_token(id, vocab_size());
    return tokenizer_.decode(ids, true);
  }
  std::string piece(TokenId id) const override { return tokenizer_.piece(id); }
  void save(const std::string& folder, const std::string& stem) const override {
    write_file_atomically(folder + "/" + stem + ".model", seal_sentencepiece_model(model_));
  }

 private:
  const std::string model_;
  const SentencePiecePretrained tokenizer_;
};

// Protobuf field 1000 (ModelProto reserves 200 and above), length-delimited: the tag 1000 << 3 | 2 as a varint, the
// length, then "linnet1:" with 16 hexadecimal digits of checksum.
constexpr std::string_view kSealStart = "\xC2\x3E\x18linnet1:";
constexpr size_t kSealDigits = 16;

std::string checksum(std::string_view bytes) { return printed("%016zx", fnv1a(bytes)); }
}  // namespace

std::unique_ptr<Tokenizer> train_vocabulary(TextUnit unit, int64_t vocab_size, const std::vector<std::string>& lines) {
  if (vocab_size <= kSpecialTokenCount)
    fail_user("vocab_size is ", vocab_size, "; it must exceed the ", kSpecialTokenCount, " special tokens");
  std::unordered_map<std::string_view, int64_t> counts;  // views into `lines`
  for (const std::string& line : lines)
    for (const std::string_view part : split_units(unit, line)) ++counts[part];
  if (counts.empty()) fail_user("the training text has no ", name_of(unit), "s to make a vocabulary of");
  std::vector<std::pair<std::string_view, int64_t>> order(counts.begin(), counts.end());
  std::ranges::sort(order, {}, [](const auto& entry) { return std::pair(-entry.second, entry.first); });
  const auto room = static_cast<size_t>(std::min<int64_t>(vocab_size, INT32_MAX) - kSpecialTokenCount);
  if (order.size() > room) order.resize(room);
  const auto token_of = [](const auto& entry) { return entry.first; };
  return std::make_unique<VocabularyTokenizer>(unit, mapped<std::string>(order, token_of));
}

std::string format_vocabulary(TextUnit unit, std::span<const std::string> tokens) {
  std::string text = "linnet-tokenizer 1 " + name_of(unit) + " " + std::to_string(tokens.size()) + "\n";
  for (const std::string& token : tokens) text += escape(token) + "\n";
  return text;
}

std::unique_ptr<Tokenizer> parse_vocabulary(TextUnit unit, std::string_view bytes, const std::string& path) {
  const std::vector<std::string_view> lines = split(bytes, '\n');  // the last one is empty: each line has an end
  size_t line_number = lines.size() > 1 ? 1 : 0;
  const auto fail = [&](const std::string& what) {
    fail_user("tokenizer file '", path, "' is damaged: ", what, " (line ", line_number, ")");
  };
  const std::string begin = "linnet-tokenizer 1 " + name_of(unit) + " ";
  if (lines.size() < 2 || !lines[0].starts_with(begin)) fail("it does not start with '" + begin + "COUNT'");
  const std::string count(lines[0].substr(begin.size()));
  std::vector<std::string> tokens;
  std::unordered_set<std::string> seen;
  std::string token;
  for (const std::string_view line : std::span(lines).subspan(1, lines.size() - 2)) {
    ++line_number;
    if (invalid_utf8_at(line) != line.npos) fail("invalid UTF-8");
    if (!unescape(line, token)) fail("a backslash that escapes nothing");
    const auto units = split_units(unit, token);
    if (units.size() != 1 || units[0].size() != token.size()) fail("not a single " + name_of(unit));
    if (!seen.insert(token).second) fail("the same token twice");
    tokens.push_back(token);
  }
  if (!lines.back().empty() || count != std::to_string(tokens.size()))
    fail("it promises " + count.substr(0, 20) + " tokens and has " + std::to_string(tokens.size()));
  return std::make_unique<VocabularyTokenizer>(unit, std::move(tokens));
}

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model, const std::string& path) {
  return std::make_unique<SavedSentencePiece>(std::move(model), path);
}

std::string seal_sentencepiece_model(std::string_view model) {
  return std::string(model) + std::string(kSealStart) + checksum(model);
}

std::string open_sentencepiece_model(std::string_view bytes, const std::string& path) {
  const size_t seal = kSealStart.size() + kSealDigits;
  if (bytes.size() > seal) {
    const std::string_view model = bytes.substr(0, bytes.size() - seal);
    if (bytes.substr(model.size()) == std::string(kSealStart) + checksum(model)) return std::string(model);
  }
  fail_user("tokenizer file '", path, "' is truncated, damaged or was not written by Linnet");
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& folder, const std::string& stem) {
  if (file_exists(folder + "/" + stem + "/tokenizer_config.json"))  // a pretrained one's folder
    return load_pretrained_tokenizer(folder + "/" + stem);
  std::string extension;
  for (const char* candidate : {"char", "word", "model"}) {
    if (!file_exists(folder + "/" + stem + "." + candidate)) continue;
    if (!extension.empty())
      fail_user("'", folder, "' holds two tokenizers for '", stem, "': .", extension, " and .", candidate);
    extension = candidate;
  }
  if (extension.empty()) fail_user("no tokenizer '", stem, "' in '", folder, "' (neither .char, .word nor .model)");
  const std::string path = folder + "/" + stem + "." + extension, bytes = read_file(path);
  if (extension == "model") return make_sentencepiece_tokenizer(open_sentencepiece_model(bytes, path), path);
  return parse_vocabulary(extension == "char" ? TextUnit::kCharacter : TextUnit::kWord, bytes, path);
}
}  // namespace linnet
