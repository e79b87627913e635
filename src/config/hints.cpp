#include "config/hints.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/edit_distance.h"
#include "base/text.h"

namespace linnet {

namespace {

std::string folded(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c == '-' ? '_' : lower_ascii(c);
  return result;
}

}  // namespace

std::string nearest(std::string_view text, std::span<const std::string> candidates) {
  constexpr size_t kLongest = 64;  // no key is longer, and the distance takes quadratic time
  const std::string wanted = folded(text.substr(0, kLongest));
  std::string best;
  int best_distance = 0;
  for (const std::string& candidate : candidates) {
    int distance = edit_distance<char>(wanted, candidate);
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
    if (*c != ' ') unit += lower_ascii(*c);
  for (const auto& [name, factor] : kUnits)
    if (unit == name && value * factor >= 1 && value * factor < kMost) return static_cast<uint64_t>(value * factor);
  return {};
}

}  // namespace linnet
