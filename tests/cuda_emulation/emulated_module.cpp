// The emulation as a module that the program loads in place of liblinnet_cuda.so (LINNET_CUDA_MODULE): whole commands
// run on it, and what must hold between two binaries with types in common is tested where there is no GPU.
#include <cstdio>

#include "cuda_emulation/emulated_backend.h"
#include "engine/exec/backend.h"

extern "C" __attribute__((visibility("default"))) const linnet::Backend* linnet_cuda_open(const char* program_version,
                                                                                          int index, char* message,
                                                                                          size_t message_size) {
  if (std::string(program_version) == linnet::backend_version() && index == 0)
    return &linnet::emulated_backend().backend;
  std::snprintf(message, message_size, "there is no cuda:%d in the emulation", index);
  return nullptr;
}
