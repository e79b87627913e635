// Joins the devices of several ranks, so that values go between them past the host's memory.
#pragma once
#include "distributed/comm/device_ranks.h"
#include "engine/ops/kernel.h"

namespace linnet {

// Every rank of the world calls this. Ranks on CPUs exchange in their own memory: no ranks and no reason. Of GPUs the
// CUDA module joins what is possible: see linnet_cuda_join. AgreedError where NCCL fails.
JoinedDevices join_devices(const Backend& backend, Communicator& world);

// What the module exports as `linnet_cuda_join`; `device` is one that it has opened.
using JoinDevices = void (*)(Device& device, Communicator& world, JoinedDevices& joined);

}  // namespace linnet
