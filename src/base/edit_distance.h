// How far apart two words are, for misspellings.
#pragma once
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace linnet {

// The fewest insertions, deletions, replacements and swaps of neighbors that turn `a` into `b` (optimal string
// alignment). Damerau and Levenshtein's recurrence, with the three rows it looks at:
//   d[i][j] = min(d[i-1][j] + 1, d[i][j-1] + 1, d[i-1][j-1] + (a[i] != b[j]), d[i-2][j-2] + 1 where neighbors swap)
template <class Character>
int edit_distance(std::basic_string_view<Character> a, std::basic_string_view<Character> b) {
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

}  // namespace linnet
