// How much memory this process occupies, as the operating system counts it (shared libraries included).
#pragma once
#include <cstdint>

namespace linnet {

uint64_t resident_bytes();       // now (VmRSS)
uint64_t peak_resident_bytes();  // the most it ever was (VmHWM)

}  // namespace linnet
