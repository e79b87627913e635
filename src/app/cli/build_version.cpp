#include "app/cli/command_line.h"
#include "linnet_commit.h"  // written by cmake/commit.cmake

namespace linnet {
std::string build_version() {
  std::string text = "linnet " LINNET_VERSION " (";
  if (const std::string commit = LINNET_COMMIT; !commit.empty()) text += "commit " + commit + ", ";
  text += LINNET_BUILD_TYPE ", ";
#ifdef __clang__
  text += __VERSION__;  // includes the compiler's name
#else
  text += "GCC " __VERSION__;
#endif
  return text + ")";
}
}  // namespace linnet
