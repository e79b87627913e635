// What sums over ranks add on a GPU (distributed/comm/communicator.h).
#pragma once
#include <cstdint>
#include "engine/device/device.h"

namespace linnet {

// into[i] += from[i]; queued.
void add_values_cuda(Device* device, float* into, const float* from, int64_t count);

}  // namespace linnet
