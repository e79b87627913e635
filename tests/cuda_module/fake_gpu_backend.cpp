// Op tests and training tests on the CUDA module's own host code - device, recordings, cuBLASLt's callers - over a fake
// runtime and a fake cuBLASLt. Kernels run in the emulation; cuDNN and NVRTC are not there, so that the CPU's kernels
// compute pointwise expressions and convolutions and attention are Linnet's own.
#include "cuda_module/fake_gpu_backend.h"
#include <cstdlib>
#include "cuda_emulation/emulated_backend.h"
#include "cuda_module/fake_runtime.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/op_table.h"
#include "op_harness.h"

namespace linnet {
KernelList matmul_cuda_kernels();
KernelList linear_cross_entropy_cuda_kernels();
KernelList linear_cross_entropy_grad_cuda_kernels();
}  // namespace linnet

namespace linnet::testing {
namespace {
void queue_of_kernels(Device* device, std::function<void()> task) {
  queue_on_stream(static_cast<CudaDevice*>(device)->stream(), std::move(task));
}
}  // namespace

std::vector<BackendOp> fake_gpu_ops() {
  setenv("LINNET_CACHE", "/dev/null/none", 1);  // nothing is kept on disk
  set_queue_of_kernels(queue_of_kernels);
  std::vector<BackendOp> ops{
      {"matmul", matmul_cuda_kernels()},
      {"linear_cross_entropy", linear_cross_entropy_cuda_kernels()},
      {"linear_cross_entropy_grad", linear_cross_entropy_grad_cuda_kernels()},
  };
  const std::vector<BackendOp> others = emulated_ops();
  ops.insert(ops.end(), others.begin(), others.end());
  return ops;
}

const Backend* tested_backend() {
  struct FakeGpu {
    CudaDevice device{0};
    std::vector<BackendOp> ops = fake_gpu_ops();
    Backend backend{&device, ops};
  };
  static auto& gpu = *new FakeGpu;
  return &gpu.backend;
}
void disturb_backend(bool disturbed) { emulation::set_reversed(disturbed); }
}  // namespace linnet::testing
