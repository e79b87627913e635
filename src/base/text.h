// Small functions of texts.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace linnet {
// The message without line breaks and control characters, since it may quote files; a long one is cut in the middle.
std::string one_line(std::string message);

// Joins text_of(item) of all items that are not empty.
template <class Items, class TextOf = std::identity>
std::string joined(const Items& items, std::string_view separator = ", ", const TextOf& text_of = {}) {
  std::string text;
  for (const auto& item : items) {
    if (!text.empty()) text += separator;
    text += std::invoke(text_of, item);
  }
  return text;
}

// The parts between the separators, including empty ones: "a,,b" has three.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != text.npos; text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

// `text` without the characters of `blanks` at either end.
inline std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r") {
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

inline void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// A pair of texts in one line; tabs of the first become spaces.
inline std::string with_tab(std::string first, std::string_view second) {
  std::ranges::replace(first, '\t', ' ');
  return (first += '\t').append(second);
}

inline bool is_digits(std::string_view text) {  // at least one, and nothing else
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// Lowers A to Z, whatever the locale; other bytes stay.
constexpr char lower_ascii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
inline std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = lower_ascii(c);
  return lower;
}

inline std::string upper_ascii(std::string_view text) {
  std::string upper(text);
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return upper;
}

// Escapes text for contents and attributes of HTML and SVG.
inline std::string html_escaped(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (c == '&') result += "&amp;";
    else if (c == '<') result += "&lt;";
    else if (c == '>') result += "&gt;";
    else if (c == '"') result += "&quot;";
    else result += c;
  return result;
}

// The fewest insertions, deletions, replacements and swaps of neighbors that turn `a` into `b` (optimal string
// alignment), by Damerau and Levenshtein's recurrence, of which three rows are kept:
//   d[i][j] = min(d[i-1][j] + 1, d[i][j-1] + 1, d[i-1][j-1] + (a[i] != b[j]), d[i-2][j-2] + 1 where neighbors swap)
template <class Character> int edit_distance(std::basic_string_view<Character> a, std::basic_string_view<Character> b) {
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// Parts of the library for programs use it in place of fmt, which programs would have to link.
[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...);
}  // namespace linnet
