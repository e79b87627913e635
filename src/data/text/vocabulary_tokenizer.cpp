#include "data/text/vocabulary_tokenizer.h"
#include <algorithm>
#include "base/error.h"
#include "base/files.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

constexpr const char* kSpecialPieces[] = {"<pad>", "<unk>", "<s>", "</s>"};

const char* name_of(TextUnit unit) { return unit == TextUnit::kCharacter ? "char" : "word"; }

std::vector<std::string_view> split_units(TextUnit unit, std::string_view line) {
  return unit == TextUnit::kCharacter ? split_code_points(line) : split_white_space(line);
}

struct Escape {
  char letter, byte;
};
constexpr Escape kEscapes[] = {{'\\', '\\'}, {'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'s', ' '}};

std::string escape(std::string_view token) {
  std::string text;
  for (const char c : token) {
    const auto* found = std::find_if(std::begin(kEscapes), std::end(kEscapes), [&](Escape e) { return e.byte == c; });
    if (found == std::end(kEscapes)) {
      text += c;
    } else {
      text += '\\';
      text += found->letter;
    }
  }
  return text;
}

// False when a backslash is followed by anything but one of the letters above.
bool unescape(std::string_view text, std::string& token) {
  token.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      token += text[i];
      continue;
    }
    if (++i == text.size()) return false;
    const auto* found =
        std::find_if(std::begin(kEscapes), std::end(kEscapes), [&](Escape e) { return e.letter == text[i]; });
    if (found == std::end(kEscapes)) return false;
    token += found->byte;
  }
  return true;
}

}  // namespace

VocabularyTokenizer::VocabularyTokenizer(TextUnit unit, std::vector<std::string> tokens)
    : unit_(unit), tokens_(std::move(tokens)) {
  ids_.reserve(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) ids_.emplace(tokens_[i], kSpecialTokenCount + static_cast<TokenId>(i));
}

std::string VocabularyTokenizer::kind() const { return name_of(unit_); }

void VocabularyTokenizer::encode(std::string_view line, std::vector<TokenId>& ids) const {
  for (const std::string_view unit : split_units(unit_, line)) {
    const auto found = ids_.find(unit);
    ids.push_back(found == ids_.end() ? special().unknown : found->second);
  }
}

std::string VocabularyTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) {
    if (id == special().pad || id == special().begin || id == special().end) continue;
    if (unit_ == TextUnit::kWord && !text.empty()) text += ' ';
    text += id == special().unknown && unit_ == TextUnit::kCharacter ? to_utf8(0xFFFD) : piece(id);
  }
  return text;
}

std::string VocabularyTokenizer::piece(TokenId id) const {
  if (id < 0 || id >= vocab_size())
    fail_internal("token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocab_size()));
  return id < kSpecialTokenCount ? kSpecialPieces[id] : tokens_[static_cast<size_t>(id - kSpecialTokenCount)];
}

void VocabularyTokenizer::save(const std::string& folder, const std::string& stem) const {
  write_file_atomically(folder + "/" + stem + "." + name_of(unit_), format_vocabulary(unit_, tokens_));
}

std::unique_ptr<Tokenizer> train_vocabulary(TextUnit unit, int64_t vocab_size, const std::vector<std::string>& lines) {
  if (vocab_size <= kSpecialTokenCount)
    fail_user("vocab_size is " + std::to_string(vocab_size) + "; it must exceed the " +
              std::to_string(kSpecialTokenCount) + " special tokens");
  std::unordered_map<std::string_view, int64_t> counts;  // views into `lines`
  for (const std::string& line : lines)
    for (const std::string_view part : split_units(unit, line)) ++counts[part];
  if (counts.empty()) fail_user("the training text has no " + std::string(name_of(unit)) + "s to make a vocabulary of");

  std::vector<std::pair<std::string_view, int64_t>> order(counts.begin(), counts.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  const auto room = static_cast<size_t>(std::min<int64_t>(vocab_size, INT32_MAX) - kSpecialTokenCount);
  if (order.size() > room) order.resize(room);
  std::vector<std::string> tokens;
  tokens.reserve(order.size());
  for (const auto& [token, count] : order) tokens.emplace_back(token);
  return std::make_unique<VocabularyTokenizer>(unit, std::move(tokens));
}

std::string format_vocabulary(TextUnit unit, std::span<const std::string> tokens) {
  std::string text = std::string("linnet-tokenizer 1 ") + name_of(unit) + " " + std::to_string(tokens.size()) + "\n";
  for (const std::string& token : tokens) text += escape(token) + "\n";
  return text;
}

std::unique_ptr<Tokenizer> parse_vocabulary(TextUnit unit, std::string_view bytes, const std::string& path) {
  size_t line_number = 0;
  const auto next_line = [&](std::string_view& line) {
    const size_t end = bytes.find('\n');
    if (end == bytes.npos) return false;
    line = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    ++line_number;
    return true;
  };
  const auto fail = [&](const std::string& what) {
    fail_user("tokenizer file '" + path + "' is damaged: " + what + " (line " + std::to_string(line_number) + ")");
  };

  std::string_view line;
  const std::string begin = std::string("linnet-tokenizer 1 ") + name_of(unit) + " ";
  if (!next_line(line) || !line.starts_with(begin)) fail("it does not start with '" + begin + "COUNT'");
  const std::string count(line.substr(begin.size()));

  std::vector<std::string> tokens;
  std::unordered_map<std::string, bool> seen;
  std::string token;
  while (next_line(line)) {
    if (invalid_utf8_at(line) != line.npos) fail("invalid UTF-8");
    if (!unescape(line, token)) fail("a backslash that escapes nothing");
    const auto units = split_units(unit, token);
    if (units.size() != 1 || units[0].size() != token.size()) fail("not a single " + std::string(name_of(unit)));
    if (!seen.emplace(token, true).second) fail("the same token twice");
    tokens.push_back(token);
  }
  if (!bytes.empty() || count != std::to_string(tokens.size()))
    fail("it promises " + count.substr(0, 20) + " tokens and has " + std::to_string(tokens.size()));
  return std::make_unique<VocabularyTokenizer>(unit, std::move(tokens));
}

}  // namespace linnet
