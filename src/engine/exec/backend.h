// Which device plans run on, by the name a user gives.
#pragma once
#include <string>
#include "distributed/comm/communicator.h"
#include "engine/ops/kernel.h"

namespace linnet {

// "cpu", "cuda" or "cuda:N": opens GPU N through the module liblinnet_cuda.so, once for the whole program. "cuda": the
// first GPU, or the next one for each rank of a machine. The module is looked for beside the program, in ../lib/linnet
// beside it, and where LINNET_CUDA_MODULE says. Error(kUser) in one line: an unknown name, no module, a module of
// another version; Error(kSystem): no driver, no such GPU, a library missing.
const Backend& open_backend(const std::string& device);

// What the module exports, as `linnet_cuda_open`: the backend, or null and a message. Module and program share C++
// types, so they must be of one build: the module gets the program's version and refuses another.
using OpenBackend = const Backend* (*)(const char* program_version, int index, char* message, size_t message_size);
const char* backend_version();

// Joins the devices of several ranks, so that values go between them past the host's memory.

// Every rank of the world calls this. Ranks on CPUs exchange in their own memory: no ranks and no reason. Of GPUs the
// CUDA module joins what is possible: see linnet_cuda_join. AgreedError where NCCL fails.
JoinedDevices join_devices(const Backend& backend, Communicator& world);

// What the module exports as `linnet_cuda_join`; `device` is one that it has opened.
using JoinDevices = void (*)(Device& device, Communicator& world, JoinedDevices& joined);

}  // namespace linnet
