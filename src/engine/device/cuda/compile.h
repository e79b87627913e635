// Kernels that are compiled while the program runs (engine/device/cuda/nvrtc.h).
#pragma once
#include <cuda_runtime_api.h>
#include <string>
#include "engine/device/cuda/cuda_device.h"

namespace linnet {

// Queues the function `name` (extern "C") of a source by CudaDevice::launch. The first call with a source compiles and
// loads it; that must not be inside a recording.
void launch_compiled(CudaDevice& device, const std::string& source, const char* name, dim3 grid, dim3 block,
                     void** arguments);

}  // namespace linnet
