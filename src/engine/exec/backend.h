// Opens the device that plans run on, by the name a user gives.
#pragma once
#include <string>
#include "distributed/comm/communicator.h"
#include "engine/ops/kernel.h"

namespace linnet {
// "cpu", "cuda" or "cuda:N": opens GPU N through the module liblinnet_cuda.so, once per process. "cuda" is the first
// GPU, or the next one for each rank of a machine. The module is searched beside the program, in ../lib/linnet from
// there, and at LINNET_CUDA_MODULE. User error: unknown name, no module, module of another version; system error: no
// driver, no such GPU, missing library.
const Backend& open_backend(const std::string& device);

// The module's `linnet_cuda_open`: the backend, or null and a message. Module and program share C++ types, so they must
// be of one build: the module gets the program's version and refuses another.
using OpenBackend = const Backend* (*)(const char* program_version, int index, char* message, size_t message_size);
const char* backend_version();

// Joins the devices of several ranks; collective. Ranks on CPUs exchange in host memory: no ranks and no reason. GPUs
// are joined by the CUDA module (linnet_cuda_join). AgreedError if NCCL fails.
JoinedDevices join_devices(const Backend& backend, Communicator& world);

// The module's `linnet_cuda_join`; the module must have opened `device`.
using JoinDevices = void (*)(Device& device, Communicator& world, JoinedDevices& joined);
}  // namespace linnet
