// The GPU's energy counter, through NVML, which is loaded when it is first asked.
#pragma once

namespace linnet {

// Joules since the driver was loaded; below 0 when NVML or the counter is not there.
double gpu_joules(int index);

}  // namespace linnet
