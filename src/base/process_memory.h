// What the operating system says of this process.
#pragma once
#include <cstdint>

namespace linnet {

// Memory it occupies, shared libraries included.
uint64_t resident_bytes();       // now (VmRSS)
uint64_t peak_resident_bytes();  // the most it ever was (VmHWM)

// Since it was started, to a hundredth.
double process_seconds();

}  // namespace linnet
