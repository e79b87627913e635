#include "base/cgroup.h"
#include <algorithm>
#include <fstream>
#include <optional>

namespace linnet {
namespace {

// A limit; "max" and -1 stand for none.
std::optional<double> read_limit(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value && value >= 0 ? std::optional(value) : std::nullopt;
}

// Calls visit(folder, version) for the group of a controller that this process is in and for all groups above. A line
// of `membership` is ID:CONTROLLERS:PATH, without controllers for version 2. A container may not see its path: what it
// sees then is its own group, at the root.
template <class Visit>
void visit_groups(const std::string& root, const std::string& membership, const std::string& controller, Visit visit) {
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const bool is_v2 = controllers == ",,";
    if (!is_v2 && controllers.find(',' + controller + ',') == std::string::npos) continue;
    const std::string base = is_v2 ? root : root + '/' + controller;
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      while (path.ends_with('/')) path.pop_back();
      visit(base + path, is_v2 ? 2 : 1);
      if (path.empty()) break;
    }
  }
}

// Pages of files that a group has in memory.
double file_pages(const std::string& folder, int version) {
  std::ifstream file(folder + "/memory.stat");
  std::string key;
  double value = 0, pages = 0;
  const std::string prefix = version == 2 ? "" : "total_";
  while (file >> key >> value)
    if (key == prefix + "inactive_file" || key == prefix + "active_file") pages += value;
  return pages;
}

}  // namespace

uint64_t cgroup_memory_left(const std::string& root, const std::string& membership) {
  uint64_t left = UINT64_MAX;
  visit_groups(root, membership, "memory", [&](const std::string& folder, int version) {
    const char* limit_name = version == 2 ? "/memory.max" : "/memory.limit_in_bytes";
    const char* used_name = version == 2 ? "/memory.current" : "/memory.usage_in_bytes";
    const std::optional<double> limit = read_limit(folder + limit_name), used = read_limit(folder + used_name);
    // Version 1 says "no limit" with a number near 2^63.
    if (!limit || !used || *limit > 1e18) return;
    left = std::min(left, static_cast<uint64_t>(std::max(0.0, *limit - *used + file_pages(folder, version))));
  });
  return left;
}

double cgroup_processors(const std::string& root, const std::string& membership) {
  double processors = 1e9;
  visit_groups(root, membership, "cpu", [&](const std::string& folder, int version) {
    std::optional<double> quota, period;
    if (version == 2) {  // "QUOTA PERIOD" in one file
      std::ifstream file(folder + "/cpu.max");
      double q = 0, p = 0;
      if (file >> q >> p) quota = q, period = p;
    } else {
      quota = read_limit(folder + "/cpu.cfs_quota_us"), period = read_limit(folder + "/cpu.cfs_period_us");
    }
    if (quota && period && *quota > 0 && *period > 0) processors = std::min(processors, *quota / *period);
  });
  return processors;
}

}  // namespace linnet
