// Finds Linnet's own shared libraries, which are loaded on demand.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace linnet {
struct ModuleSearch {
  std::filesystem::path found;  // empty: there is none
  std::string looked;           // where it was looked for, for messages
};

// Looks for the file `name` beside the program and in its library folder; the environment variable, if set, overrides.
inline ModuleSearch search_module(const char* name, const char* variable) {
  std::vector<std::filesystem::path> locations;
  if (const char* given = std::getenv(variable)) {
    locations = {given};
  } else {
    std::error_code ignored;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    locations = {folder / name, folder / "../lib/linnet" / name};
  }
  ModuleSearch search;
  for (const auto& location : locations) {
    if (std::filesystem::exists(location)) return {location, search.looked};
    search.looked += (search.looked.empty() ? "" : ", ") + location.lexically_normal().string();
  }
  return search;
}
}  // namespace linnet
