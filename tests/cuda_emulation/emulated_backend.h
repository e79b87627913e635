// The CUDA kernels on an EmulatedDevice. What NVIDIA's libraries do on a GPU (matrix products, convolutions, attention
// in bf16) is done by the CPU's kernels here.
#pragma once
#include <vector>
#include "cuda_emulation/emulated_device.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct EmulatedBackend {
  EmulatedDevice* device;
  Backend backend;
};
// Every op: the CUDA kernels of our own, and the CPU's of ops that a library computes.
std::vector<BackendOp> emulated_ops();
// One for the whole program.
const EmulatedBackend& emulated_backend();
}  // namespace linnet
