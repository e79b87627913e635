// Ranks with a GPU each: NCCL moves their messages between the GPUs, and Linnet's kernels add.
#pragma once
#include "distributed/comm/communicator.h"
#include "engine/device/cuda/cuda_device.h"

namespace linnet {
// Collective; the world passes rank 0's unique id for NCCL to all ranks. Returns no ranks, and the reason, if a rank
// has no NCCL or another version, or two ranks have one GPU, which NCCL refuses. AgreedError if NCCL fails. With one
// rank NCCL is not used.
JoinedDevices join_gpus(CudaDevice& device, Communicator& world);
}  // namespace linnet
