#include <algorithm>
#include <cctype>
#include "data/text/chat/jinja_program.h"
#include "data/text/unicode/utf8.h"

namespace linnet::jinja {
namespace {
constexpr size_t kLongest = 2000;  // tokens between two marks: their closures call each other

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(const std::string& source, int& line) : line_(line) {
    for (size_t i = 0; i < source.size(); ++i) {  // every kind of line end is "\n", and the last one does not count
      if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
      source_ += source[i] == '\r' ? '\n' : source[i];
    }
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Token> read() {
    while (at_ < source_.size()) {
      const size_t mark = next_mark();
      read_text(mark);
      if (mark == source_.npos) break;
      if (source_[mark + 1] == '#') skip_comment();
      else read_code(source_[mark + 1] == '%');
    }
    push(Token::kEnd, "");
    return std::move(tokens_);
  }

 private:
  char at(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  void push(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void take(Token::Kind kind, size_t end) {
    push(kind, source_.substr(at_, end - at_));
    advance(end);
  }

  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + to, '\n'));
    at_ = to;
  }

  size_t next_mark() const {
    size_t i = source_.find('{', at_);
    while (i != source_.npos && at(i + 1) != '{' && at(i + 1) != '%' && at(i + 1) != '#') i = source_.find('{', i + 1);
    return i;
  }

  // Reads text up to a mark, which may trim the white space at its end.
  void read_text(size_t mark) {
    const size_t end = std::min(mark, source_.size());
    std::string text = source_.substr(at_, end - at_);
    if (const char sign = at(mark + 2); mark != source_.npos && sign == '-') {
      text.resize(text.find_last_not_of(kSpace) + 1);
    } else if (mark != source_.npos && source_[mark + 1] != '{' && sign != '+') {
      const size_t line = text.rfind('\n') + 1;
      if ((line > 0 || line_starts_) && text.find_first_not_of(kSpace, line) == text.npos) text.resize(line);
    }
    if (!text.empty()) push(Token::kText, std::move(text));
    advance(end);
  }

  // `end`: of the tag; `sign`: before its closing mark.
  void finish_tag(size_t end, char sign, bool trims) {
    if (sign == '-') end = std::min(source_.find_first_not_of(kSpace, end), source_.size());
    else if (trims && sign != '+' && at(end) == '\n') ++end;
    advance(end);
    line_starts_ = source_[end - 1] == '\n';
  }

  void skip_comment() {
    const size_t end = source_.find("#}", at_ + 2);
    if (end == source_.npos) fail("a comment {# has no end");
    finish_tag(end + 2, end > at_ + 2 ? source_[end - 1] : ' ', true);
  }

  void read_code(bool block) {
    push(block ? Token::kBlockBegin : Token::kExprBegin, "");
    const std::string close = block ? "%}" : "}}";
    const size_t first = tokens_.size();
    at_ += 2;
    if (at(at_) == '-' || (block && at(at_) == '+')) ++at_;
    for (int depth = 0;;) {
      advance(std::min(source_.find_first_not_of(kSpace, at_), source_.size()));
      if (at_ >= source_.size()) fail(std::string("a ") + (block ? "{%" : "{{") + " has no end");
      const char c = source_[at_];
      const bool sign = (c == '-' || c == '+') && source_.compare(at_ + 1, 2, close) == 0;
      if (depth == 0 && (sign || source_.compare(at_, 2, close) == 0)) {
        push(block ? Token::kBlockEnd : Token::kExprEnd, "");
        finish_tag(at_ + (sign ? 3 : 2), sign ? c : ' ', block);
        break;
      }
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') --depth;
      read_token();
      if (tokens_.size() - first > kLongest) fail("an expression of more than " + std::to_string(kLongest) + " words");
    }
    const bool raw = block && tokens_.size() == first + 2 && tokens_[first].text == "raw";
    if (raw) read_raw(first - 1);
  }

  void read_raw(size_t tag) {
    tokens_.resize(tag);
    for (size_t begin = source_.find("{%", at_); begin != source_.npos; begin = source_.find("{%", begin + 2)) {
      const size_t sign = at(begin + 2) == '-' || at(begin + 2) == '+';
      const size_t name = source_.find_first_not_of(kSpace, begin + 2 + sign);
      if (name == source_.npos || source_.compare(name, 6, "endraw") != 0) continue;
      const size_t end = source_.find("%}", name);
      if (end == source_.npos) break;
      read_text(begin);
      finish_tag(end + 2, source_[end - 1], true);
      return;
    }
    fail("a {% raw %} has no end");
  }

  void read_token() {
    const char c = source_[at_];
    if (is_digit(c)) return read_number();
    if (is_name(c)) {
      size_t end = at_;
      while (is_name(at(end))) ++end;
      return take(Token::kName, end);
    }
    if (c == '"' || c == '\'') return read_string();
    for (const char* op : {"//", "**", "==", "!=", "<=", ">="})
      if (source_.compare(at_, 2, op) == 0) return take(Token::kOperator, at_ + 2);
    if (std::string_view("+-*/%~|.,:()[]{}<>=").find(c) == std::string_view::npos)
      fail(std::string("an unexpected character '") + c + "'");
    take(Token::kOperator, at_ + 1);
  }

  void read_number() {
    size_t end = at_;
    bool is_float = false;
    const auto digits = [&] {
      while (is_digit(at(end)) || at(end) == '_') ++end;
    };
    digits();
    if (at(end) == '.' && is_digit(at(end + 1))) is_float = true, ++end, digits();
    const size_t power = end + (at(end + 1) == '+' || at(end + 1) == '-' ? 2 : 1);
    if ((at(end) == 'e' || at(end) == 'E') && is_digit(at(power))) is_float = true, end = power + 1, digits();
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    if (!is_float && text.size() > 18) fail("the number " + text + " is too large");
    push(is_float ? Token::kFloat : Token::kInteger, std::move(text));
    advance(end);
  }

  void read_string() {
    const char quote = source_[at_];
    std::string text;
    size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] != '\\' || i + 1 == source_.size()) {
        text += source_[i];
        continue;
      }
      const char c = source_[++i];
      const size_t known = std::string_view("ntrbf0\\'\"").find(c);
      if (known != std::string_view::npos) {
        text += "\n\t\r\b\f\0\\'\""[known];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const std::string digits = source_.substr(i + 1, count);
        if (digits.size() < count || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos)
          fail("a string has a broken escape");
        const unsigned long code = std::stoul(digits, nullptr, 16);
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("a string has a broken escape");
        text += to_utf8(static_cast<char32_t>(code));
        i += count;
      } else {
        text += std::string("\\") + c;
      }
    }
    if (i >= source_.size()) fail("a string has no end");
    push(Token::kString, std::move(text));
    advance(i + 1);
  }

  std::string source_;
  size_t at_ = 0;
  bool line_starts_ = true;  // nothing stands before at_ in its line
  int& line_;
  std::vector<Token> tokens_;
};
}  // namespace

std::vector<Token> read_tokens(const std::string& source, int& line) { return Lexer(source, line).read(); }
}  // namespace linnet::jinja
