// Environment variables that switch features off, to find the cause of a fault.
#pragma once
#include <cstdlib>
#include <string_view>

namespace linnet {
inline bool switched_off(const char* variable) {
  const char* given = std::getenv(variable);
  return given && std::string_view(given) == "off";
}
}  // namespace linnet
