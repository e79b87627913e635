#include "config/hints.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include "base/text.h"

namespace linnet {
namespace {
std::string folded(std::string_view text) {
  while (text.starts_with('-')) text.remove_prefix(1);  // of options: would make all names similar
  std::string result = lower_ascii(text);
  std::ranges::replace(result, '-', '_');
  return result;
}
}  // namespace

std::string nearest(std::string_view text, std::span<const std::string> candidates) {
  constexpr size_t kLongest = 64;  // keys are shorter, and the distance takes quadratic time
  const std::string wanted = folded(text.substr(0, kLongest));
  std::string best;
  int best_distance = 0;
  for (const std::string& candidate : candidates) {
    const std::string name = folded(candidate);
    int distance = edit_distance<char>(wanted, name);
    const bool is_part = wanted.size() >= 3 && name.find(wanted) != name.npos;
    if (is_part) distance = std::min(distance, 1);
    const bool is_near = is_part || (wanted.size() >= 2 && name.starts_with(wanted)) ||
                         (name.size() >= 3 && wanted.starts_with(name)) ||
                         distance <= static_cast<int>(std::max(wanted.size(), name.size()) + 1) / 3;
    if (!is_near || (!best.empty() && distance >= best_distance)) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view text, std::span<const std::string> candidates, const std::string& before,
    const std::string& after) {
  const std::string name = nearest(text, candidates);
  return name.empty() ? "" : " (did you mean " + before + name + after + "?)";
}

std::optional<uint64_t> parse_byte_size(std::string_view text) {
  constexpr std::pair<const char*, double> kUnits[] = {{"", 1}, {"b", 1}, {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9},
      {"kib", 1024}, {"mib", 1048576}, {"gib", 1073741824}, {"k", 1024}, {"m", 1048576}, {"g", 1073741824}};
  constexpr double kMost = 1e18;
  while (text.starts_with(' ')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value <= 0) return {};
  std::string unit = lower_ascii({end, text.data() + text.size()});
  std::erase(unit, ' ');
  for (const auto& [name, factor] : kUnits)
    if (unit == name && value * factor >= 1 && value * factor < kMost) return static_cast<uint64_t>(value * factor);
  return {};
}

std::string byte_size_problem(const std::string& text) {
  const std::optional<uint64_t> bytes = parse_byte_size(text);
  if (!bytes) return " is not an amount; write for example 4GiB or 500MB";
  const bool has_unit = text.find_first_not_of("0123456789.eE+ ") != text.npos;
  return has_unit || *bytes >= 1'000'000 ? "" : ": give a unit, such as " + text + "GB";
}
}  // namespace linnet
