// Memory, time and limits of this process, as the operating system reports them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace linnet {
// Occupied memory, including shared libraries.
uint64_t resident_bytes();       // now (VmRSS)
uint64_t peak_resident_bytes();  // the most it ever was (VmHWM)

// For errors about refused memory: "; the address space is limited to 30 MB (ulimit -v)", or "" without a limit.
std::string memory_limit();

// Gives the pages that lie wholly within these bytes back to the system. They read as zeros afterwards.
void give_back_pages(void* begin, size_t bytes);

double process_seconds();  // since its start, to 0.01 s

// Limits of control groups (cgroups, version 1 or 2), in the process's own group and in those above it. `root` and
// `membership` are the contents of /sys/fs/cgroup and /proc/self/cgroup.

// Bytes below the lowest limit; file pages count as free, since the kernel reclaims them. UINT64_MAX: no limit.
uint64_t cgroup_memory_left(
    const std::string& root = "/sys/fs/cgroup", const std::string& membership = "/proc/self/cgroup");

// The lowest quota in processors; a large number if there is no limit.
double cgroup_processors(
    const std::string& root = "/sys/fs/cgroup", const std::string& membership = "/proc/self/cgroup");
}  // namespace linnet
