// Ranks of which each trains on a GPU: NCCL moves their messages between the GPUs, and Linnet's kernels add.
#pragma once
#include "distributed/comm/communicator.h"
#include "engine/device/cuda/cuda_device.h"

namespace linnet {

// Every rank of the world calls this; the world itself is what NCCL is set up with: rank 0's unique id goes to all.
// No ranks, and the reason, where a rank has no NCCL or another version, or two ranks have one GPU, which NCCL refuses.
// AgreedError where NCCL fails. With one rank NCCL is not asked for.
JoinedDevices join_gpus(CudaDevice& device, Communicator& world);

}  // namespace linnet
