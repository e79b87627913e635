#include "config/byte_size.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace linnet {

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
