// Small functions of numbers.
#pragma once
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace linnet {
// a / b for a >= 0 and b > 0, rounded up.
template <class A, class B> constexpr std::common_type_t<A, B> ceil_div(A a, B b) { return (a + b - 1) / b; }

// The least multiple of `unit` that is at least `value`.
template <class A, class B> constexpr std::common_type_t<A, B> round_up(A value, B unit) {
  return ceil_div(value, unit) * unit;
}

// The number whose bytes are at `from`, which may be unaligned.
template <class T> T number_at(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
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

template <class List> void append_shortest(std::string& text, const List& numbers, char between) {
  bool first = true;
  for (const auto number : numbers) {
    if (!std::exchange(first, false)) text += between;
    append_shortest(text, number);
  }
}

// "[1, 2.5]"
template <class List> std::string list_text(const List& numbers) {
  std::string text = "[";
  for (const auto number : numbers) {
    if (text.size() > 1) text += ", ";
    append_shortest(text, number);
  }
  return text += ']';
}

inline std::string with_commas(int64_t number) {  // "1,234,567", for a number from 0
  std::string text = std::to_string(number);
  for (int64_t at = std::ssize(text) - 3; at > 0; at -= 3) text.insert(at, ",");
  return text;
}

// The number, if the whole text is one that fits the type.
template <class T> std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}
inline std::optional<double> parse_finite(std::string_view text) {  // neither infinite nor NaN
  const auto value = parse_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// Hash functions and random numbers, the same on every machine.

// The finalizer of SplitMix64 (Steele, Lea & Flood 2014): every input bit reaches every output bit.
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t next_splitmix64(uint64_t& state) { return mix64(state += 0x9e3779b97f4a7c15u); }

// A number of the sequence, uniform in [0, bound), without modulo bias. The standard distributions and std::shuffle
// differ between libraries.
constexpr uint64_t uniform_below(uint64_t bound, uint64_t& state) {
  const uint64_t limit = std::numeric_limits<uint64_t>::max() / bound * bound;
  uint64_t value = 0;
  do value = next_splitmix64(state);
  while (value >= limit);
  return value % bound;
}

// FNV-1a, 64 bits. Pass an earlier result as `hash` to continue it.
constexpr uint64_t fnv1a(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325u) {
  for (char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}
}  // namespace linnet
