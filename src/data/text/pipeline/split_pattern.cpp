#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include "base/fail.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
struct Range {
  char32_t first, last, stand_in;
};

constexpr Range kRecent[] = {
#include "data/text/unicode/recent_characters.inc"
};

// Whether any of the 256 characters with these upper bits is in the table.
const std::array<bool, 0x1100>& pages() {
  static const std::array<bool, 0x1100> flags = [] {
    std::array<bool, 0x1100> f{};
    for (const Range& range : kRecent)
      for (char32_t page = range.first >> 8; page <= range.last >> 8; ++page) f[page] = true;
    return f;
  }();
  return flags;
}

const Range* find(char32_t c) {
  if (!pages()[c >> 8]) return nullptr;
  const Range* range = std::ranges::lower_bound(kRecent, c, {}, &Range::last);
  return range != std::end(kRecent) && range->first <= c ? range : nullptr;
}

// Debian 12's PCRE2 knows Unicode 14, the tokenizers that Linnet follows know Unicode 16. Characters added in between,
// and those few that PCRE2 classifies differently, are replaced by older ones of the same class and length, so that
// matches keep their positions. Returns `text` itself if it has none of them, as nearly always; otherwise a view of
// `storage`. `text` must be valid UTF-8.
std::string_view replace_recent_characters(std::string_view text, std::string& storage) {
  bool copied = false;
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0xE0) {  // the table begins at three bytes
      ++i;
      continue;
    }
    const size_t length = utf8_length_at(text, i);
    if (const Range* range = find(utf8_code_point_at(text, i))) {
      if (!copied) storage.assign(text);
      copied = true;
      storage.replace(i, length, to_utf8(range->stand_in));
    }
    i += length;
  }
  return copied ? std::string_view(storage) : text;
}

// The tokenizers library uses Oniguruma. Its word characters include marks and, outside of classes, ² and ½. Each row:
// Oniguruma's spelling, PCRE2's, and PCRE2's within a class. The latter may begin with a ']'.
const std::string kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})", kAlone = kWord + R"(\xB2\xB3\xB9\xBC-\xBE])";
const std::array<std::string, 3> kSpellings[] = {{"\\w", "[" + kAlone, kWord},
    {"\\W", "[^" + kAlone, R"(\p{C}\p{Z}\p{S}\p{No}\p{Pd}\p{Ps}\p{Pe}\p{Pi}\p{Pf}\p{Po})"},
    {"\\b", "(?:(?<=[" + kAlone + ")(?![" + kAlone + ")|(?<![" + kAlone + ")(?=[" + kAlone + "))", "\\b"},
    {"\\B", "(?:(?<=[" + kAlone + ")(?=[" + kAlone + ")|(?<![" + kAlone + ")(?![" + kAlone + "))", "\\B"},
    {"\\H", "[^0-9A-Fa-f]", R"(\x00-/:-@G-`g-\x{10FFFF})"}, {"\\h", "[0-9A-Fa-f]", "0-9A-Fa-f"},
    {"[:word:]", "[:word:]", kWord}, {"[:punct:]", "[:punct:]", R"(\p{P}\p{S})"},
    {"[:alpha:]", "[:alpha:]", R"(\p{Alphabetic})"}, {"[:alnum:]", "[:alnum:]", R"(\p{Alphabetic}\p{Nd})"}};

bool is_script(std::string_view name) {
  const std::string pattern = text_of_parts("\\p{sc:", name, "}");
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

std::string as_pcre2(std::string_view rest, const std::string& shown) {
  std::string out;
  bool in_class = false;
  for (size_t length = 0; !rest.empty(); rest.remove_prefix(std::min(length, rest.size()))) {
    const auto* row = std::ranges::find_if(kSpellings, [&](const auto& r) { return rest.starts_with(r[0]); });
    const bool known = row != std::end(kSpellings), posix = in_class && rest.starts_with("[:");
    length = known ? row->at(0).size() : posix ? rest.find(":]") + 2 : rest[0] == '\\' ? 2 : 1;
    if (length == 1 && in_class && (rest[0] == '[' || rest.starts_with("&&")))
      fail_user(shown, " has '&&' or a class within a class, which Linnet does not know");
    if (length == 1 && (rest[0] == '[' || rest[0] == ']')) in_class = rest[0] == '[';
    if (length == 1 && in_class)
      length = rest.starts_with("[^]") ? 3 : rest.starts_with("[^") + rest.starts_with("[]") + 1;
    out += known ? std::string_view(row->at(in_class ? 2 : 1)) : rest.substr(0, length);
    // Of a script PCRE2 also takes characters that it shares with others, such as brackets, unless asked otherwise.
    if (rest.starts_with("\\p{") || rest.starts_with("\\P{")) {
      length = rest.substr(3).starts_with('^') ? 4 : 3;
      out += rest.substr(2, length - 2);
      if (is_script(rest.substr(length, rest.find('}') - length))) out += "sc:";
    }
  }
  return out;
}

// Limits of backtracking: usual patterns need almost none, and a hostile one must fail quickly.
constexpr size_t kJitStackBytes = 1 << 20;
constexpr uint32_t kMatchLimit = 10'000'000;
}  // namespace

struct MatchScratch::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
  std::string stand_ins;

  State() {
    if (!data || !context || !stack) fail_system("out of memory for a regular expression");
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, 64 << 10);  // KiB, of the interpreter where there is no JIT
  }
  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

MatchScratch::MatchScratch() : state_(std::make_unique<State>()) {}
MatchScratch::~MatchScratch() = default;

struct SplitPattern::Code {
  pcre2_code* code = nullptr;
  std::string shown;

  ~Code() { pcre2_code_free(code); }
};

SplitPattern::SplitPattern(const std::string& expression, const std::string& where) {
  const auto made = std::make_shared<Code>();
  code_ = made;
  made->shown = (where.empty() ? "" : where + ": ") + "the regular expression '" +
                (expression.size() <= 100 ? expression : expression.substr(0, 100) + "...") + "'";
  if (invalid_utf8_at(expression) != std::string::npos) fail_user(made->shown, " is not valid UTF-8");
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::string pattern = as_pcre2(expression, made->shown);
  // \C, which could end a match within a character, is refused. Oniguruma's ^ and $ are those of lines.
  made->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (!made->code) {
    PCRE2_UCHAR message[160] = {};
    pcre2_get_error_message(error, message, sizeof message);
    fail_user(made->shown, " is not understood: ", reinterpret_cast<const char*>(message), " (at byte ", offset, ")");
  }
  pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE);  // where it cannot, pcre2_match interprets
}

SplitPattern SplitPattern::literal(std::string_view text) {
  std::string expression = text.empty() ? "(?!)" : "";  // no text is found nowhere
  for (const char c : text) {                           // a backslash before ASCII punctuation is that character
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c)) && c > ' ' && c != 0x7F)
      expression += '\\';
    expression += c;
  }
  return SplitPattern(expression);
}

void SplitPattern::find_all(std::string_view text, MatchScratch& scratch, UseMatch use) const {
  for (size_t base = 0; base < text.size();) {
    const std::string_view rest = text.substr(base);
    const std::string_view valid = rest.substr(0, invalid_utf8_at(rest));
    if (!valid.empty()) find_valid(valid, base, scratch, use);
    base += valid.size() + 1;
  }
}

void SplitPattern::find_valid(std::string_view text, size_t base, MatchScratch& scratch, UseMatch use) const {
  MatchScratch::State& state = *scratch.state_;
  text = replace_recent_characters(text, state.stand_ins);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(state.data);
  PCRE2_SIZE last_end = PCRE2_UNSET;  // of a match; an empty one does not follow it
  for (size_t at = 0; at <= text.size();) {
    const int count = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (count == PCRE2_ERROR_NOMATCH) return;
    if (count < 0) fail_user(code_->shown, " takes too many steps on a text (PCRE2 error ", count, ")");
    if (found[1] > found[0] || found[1] != last_end) {
      at = last_end = found[1];
      use({base + found[0], base + found[1]});
    } else {
      at += at < text.size() ? utf8_length_at(text, at) : 1;
    }
  }
}
}  // namespace linnet
