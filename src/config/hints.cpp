#include "config/hints.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace linnet {

namespace {

std::string folded(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

}  // namespace

// Damerau and Levenshtein's recurrence, with the three rows it looks at:
//   d[i][j] = min(d[i-1][j] + 1, d[i][j-1] + 1, d[i-1][j-1] + (a[i] != b[j]), d[i-2][j-2] + 1 where neighbours swap)
int edit_distance(std::string_view a, std::string_view b) {
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

std::string nearest(std::string_view text, std::span<const std::string> candidates) {
  constexpr size_t kLongest = 64;  // no key is longer, and the distance takes quadratic time
  const std::string wanted = folded(text.substr(0, kLongest));
  std::string best;
  int best_distance = 0;
  for (const std::string& candidate : candidates) {
    int distance = edit_distance(wanted, candidate);
    if (wanted.size() >= 3 && candidate.find(wanted) != candidate.npos) distance = std::min(distance, 1);
    if (!best.empty() && distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::optional<uint64_t> parse_byte_size(std::string_view text) {
  constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1},     {"b", 1},       {"kb", 1e3},      {"mb", 1e6},
      {"gb", 1e9}, {"kib", 1024},  {"mib", 1048576}, {"gib", 1073741824},
      {"k", 1024}, {"m", 1048576}, {"g", 1073741824}};
  constexpr double kMost = 1e18;
  while (text.starts_with(' ')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value <= 0) return {};
  std::string unit;
  for (const char* c = end; c < text.data() + text.size(); ++c)
    if (*c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  for (const auto& [name, factor] : kUnits)
    if (unit == name && value * factor >= 1 && value * factor < kMost) return static_cast<uint64_t>(value * factor);
  return {};
}

}  // namespace linnet
