// Names of an enumeration's values, which count from 0.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace linnet {
// In order, beside the enumeration: template <> inline constexpr std::array kEnumNames<Color>{"red", "green"};
template <class Enum> inline constexpr std::array<const char*, 0> kEnumNames{};

template <class Enum> constexpr std::span<const char* const> enum_names(Enum) {
  static_assert(!kEnumNames<Enum>.empty());
  return kEnumNames<Enum>;
}

template <class Enum> const char* enum_name(Enum value) { return enum_names(value)[static_cast<size_t>(value)]; }

template <class Enum> std::optional<Enum> enum_value(std::string_view name) {
  const auto names = enum_names(Enum{});
  for (size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<Enum>(i);
  return {};
}
}  // namespace linnet
