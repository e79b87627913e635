// The functions that the program looks up in the module (engine/exec/backend.h).
#include <cstdio>
#include <exception>
#include "engine/cuda/gpu_ranks.h"
#include "engine/exec/backend.h"
#include "engine/ops/op_table.h"

namespace linnet {
namespace {
struct OpenDevice {
  explicit OpenDevice(int index) : device(index), backend{&device, cuda_ops()} {}
  CudaDevice device;
  Backend backend;
};
}  // namespace
}  // namespace linnet

extern "C" __attribute__((visibility("default"))) const linnet::Backend* linnet_cuda_open(
    const char* program_version, int index, char* message, size_t message_size) {
  using namespace linnet;
  // Never destroyed: at the program's end the driver may be gone first.
  static auto& opened = *new std::map<int, std::unique_ptr<OpenDevice>>;
  try {
    if (std::string(program_version) != backend_version())
      fail_user(
          "the CUDA module is of another build (", backend_version(), ") than the program (", program_version, ")");
    auto& location = opened[index];
    if (!location) location = std::make_unique<OpenDevice>(index);
    return &location->backend;
  } catch (const std::exception& error) {
    std::snprintf(message, message_size, "%s", error.what());
    return nullptr;
  }
}

extern "C" __attribute__((visibility("default"))) int linnet_cuda_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

extern "C" __attribute__((visibility("default"))) void linnet_cuda_join(
    linnet::Device& device, linnet::Communicator& world, linnet::JoinedDevices& joined) {
  joined = linnet::join_gpus(static_cast<linnet::CudaDevice&>(device), world);
}
