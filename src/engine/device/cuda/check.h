// Errors of CUDA and of NVIDIA's libraries become Error(kSystem) with what was being done.
#pragma once
#include <cuda_runtime_api.h>

#include <string>

#include "base/error.h"

namespace linnet {

inline void cuda_check(cudaError_t status, const std::string& doing) {
  if (status != cudaSuccess) fail_system("CUDA: " + doing + ": " + cudaGetErrorString(status));
}

}  // namespace linnet
