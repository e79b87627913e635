// The emulation as a module that the program loads in place of liblinnet_cuda.so (LINNET_CUDA_MODULE): whole commands
// run on it, and what must hold between two binaries with types in common is tested where there is no GPU.
// LINNET_EMULATED_FAULT=crash | hang | refuse | wrong says what its third kernel does.
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include "base/error.h"
#include "cuda_emulation/emulated_backend.h"
#include "engine/exec/backend.h"

namespace {
void queue_with_fault(linnet::Device* device, std::function<void()> task) {
  static int kernels = 0;
  if (++kernels == 3) {
    const std::string fault = std::getenv("LINNET_EMULATED_FAULT");
    if (fault == "crash") std::raise(SIGSEGV);
    if (fault == "hang") pause();
    if (fault == "refuse") linnet::fail_internal("cublasLtMatmul refuses this product: the emulation was told so");
    return;  // wrong: what the kernel should have written stays NaN
  }
  static_cast<linnet::EmulatedDevice*>(device)->queue(std::move(task));
}
}  // namespace

extern "C" __attribute__((visibility("default"))) const linnet::Backend* linnet_cuda_open(
    const char* program_version, int index, char* message, size_t message_size) {
  if (std::getenv("LINNET_EMULATED_FAULT")) linnet::set_queue_of_kernels(queue_with_fault);
  if (std::string(program_version) == linnet::backend_version() && index == 0)
    return &linnet::emulated_backend().backend;
  std::snprintf(message, message_size, "there is no cuda:%d in the emulation", index);
  return nullptr;
}
