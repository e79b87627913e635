// Errors whose messages have several parts: fail_user("a prompt of ", size, " tokens is too long").
#pragma once
#include <string>
#include <type_traits>
#include "base/error.h"
#include "base/numbers.h"

namespace linnet {
template <class Part>  // texts, numbers, and types with text()
std::string part_text(const Part& part) {
  if constexpr (std::is_same_v<Part, char>) return std::string(1, part);
  else if constexpr (std::is_floating_point_v<Part>) return shortest(part);
  else if constexpr (std::is_arithmetic_v<Part>) return std::to_string(part);
  else if constexpr (requires { part.text(); }) return std::string(part.text());
  else return std::string(part);
}

template <class... Parts> std::string text_of_parts(const Parts&... parts) {
  return (std::string() + ... + part_text(parts));
}

template <class First, class Second, class... Parts>
[[noreturn]] void fail_user(const First& first, const Second& second, const Parts&... parts) {
  fail_user(text_of_parts(first, second, parts...));
}

template <class First, class Second, class... Parts>
[[noreturn]] void fail_internal(const First& first, const Second& second, const Parts&... parts) {
  fail_internal(text_of_parts(first, second, parts...));
}
}  // namespace linnet
