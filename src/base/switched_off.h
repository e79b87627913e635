// Switches in the environment, to find out what is at fault.
#pragma once
#include <cstdlib>
#include <string_view>

namespace linnet {

// Whether `variable` says "off".
inline bool switched_off(const char* variable) {
  const char* given = std::getenv(variable);
  return given && std::string_view(given) == "off";
}

}  // namespace linnet
