// What the operating system says of this process.
#pragma once
#include <cstddef>
#include <cstdint>

namespace linnet {

// Memory it occupies, shared libraries included.
uint64_t resident_bytes();       // now (VmRSS)
uint64_t peak_resident_bytes();  // the most it ever was (VmHWM)

// Gives the pages that lie wholly within these bytes back to the system. They read as zeros afterwards.
void give_back_pages(void* begin, size_t bytes);

// Since it was started, to a hundredth.
double process_seconds();

}  // namespace linnet
