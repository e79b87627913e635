#include "models/nn/parameter_groups.h"

namespace linnet {

// Greedy, with one point to go back to: the last '*' and how much of the name it has taken.
bool matches(std::string_view name, std::string_view pattern) {
  size_t n = 0, p = 0, star = pattern.npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace linnet
