// Small functions of numbers.
#pragma once
#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace linnet {
// a / b for a >= 0 and b > 0, rounded up.
template <class A, class B> constexpr std::common_type_t<A, B> ceil_div(A a, B b) { return (a + b - 1) / b; }

// The least multiple of `unit` that is at least `value`.
template <class A, class B> constexpr std::common_type_t<A, B> round_up(A value, B unit) {
  return ceil_div(value, unit) * unit;
}

inline float half_to_float(uint16_t half) {  // IEEE binary16
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float value = static_cast<float>(fraction) * 0x1p-24F;  // a subnormal half
  return sign ? -value : value;
}

// The middle of at least one value; of an even number the upper of the two middle ones.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + (values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Appends the shortest text that reads back as the same number: "0.1", "1e-12".
template <class T> void append_shortest(std::string& text, T value) {
  char digits[32];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

template <class T> std::string shortest(T value) {
  std::string text;
  append_shortest(text, value);
  return text;
}

// The number, if the whole text is one that fits the type.
template <class T> std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}
}  // namespace linnet
