// What the operating system says of this process.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace linnet {

// Memory it occupies, shared libraries included.
uint64_t resident_bytes();       // now (VmRSS)
uint64_t peak_resident_bytes();  // the most it ever was (VmHWM)

// For messages about memory that was refused: "; the address space is limited to 30 MB (ulimit -v)", or "" if it is
// not.
std::string memory_limit();

// Gives the pages that lie wholly within these bytes back to the system. They read as zeros afterwards.
void give_back_pages(void* begin, size_t bytes);

// Since it was started, to a hundredth.
double process_seconds();

// What control groups (cgroups, version 1 or 2) leave to this process: limits are looked for in its own group and in
// those above it. `root` and `membership` name what Linux shows under /sys/fs/cgroup and /proc/self/cgroup.

// Bytes below the lowest limit; pages of files count as free, since the kernel gives them back. UINT64_MAX: no limit.
uint64_t cgroup_memory_left(const std::string& root = "/sys/fs/cgroup",
                            const std::string& membership = "/proc/self/cgroup");

// Processors by the lowest quota. A large number: no limit.
double cgroup_processors(const std::string& root = "/sys/fs/cgroup",
                         const std::string& membership = "/proc/self/cgroup");

}  // namespace linnet
