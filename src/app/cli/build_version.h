// Which Linnet this is.
#pragma once
#include <string>

namespace linnet {

// "linnet 0.1.0 (commit 83746a1f0c, Release, GCC 12.2.0)"; without the commit where the sources were not in git.
std::string build_version();

}  // namespace linnet
