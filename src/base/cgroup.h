#pragma once

#include <cstdint>
#include <string>

namespace linnet {

// What control groups (cgroups, version 1 or 2) leave to this process: limits are looked for in its own group and in
// those above it. `root` and `membership` name what Linux shows under /sys/fs/cgroup and /proc/self/cgroup.

// Bytes below the lowest limit; pages of files count as free, since the kernel gives them back. UINT64_MAX: no limit.
uint64_t cgroup_memory_left(const std::string& root = "/sys/fs/cgroup",
                            const std::string& membership = "/proc/self/cgroup");

// Processors by the lowest quota. A large number: no limit.
double cgroup_processors(const std::string& root = "/sys/fs/cgroup",
                         const std::string& membership = "/proc/self/cgroup");

}  // namespace linnet
