#include "engine/device/cuda/compile.h"
#include "engine/device/cuda/nvrtc.h"

namespace linnet {
namespace {

struct LoadedKernel {
  ~LoadedKernel() { cudaLibraryUnload(library); }
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
};

std::shared_ptr<LoadedKernel> load(const CudaDevice& device, const std::string& source, const char* name) {
  if (device.recording()) fail_internal("a kernel is compiled inside a recording");
  const std::string cubin = compile_cuda(source, device.compute_capability());
  auto loaded = std::make_shared<LoadedKernel>();
  cuda_check(cudaLibraryLoadData(&loaded->library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
             "loading a compiled kernel");
  cuda_check(cudaLibraryGetKernel(&loaded->kernel, loaded->library, name), "finding a compiled kernel");
  return loaded;
}

}  // namespace

void launch_compiled(CudaDevice& device, const std::string& source, const char* name, dim3 grid, dim3 block,
                     void** arguments) {
  const LoadedKernel& loaded = device.prepared<LoadedKernel>(std::string("compiled ") + name + "\n" + source,
                                                             [&] { return load(device, source, name); });
  // Compiled for this GPU alone.
  device.launch(static_cast<const void*>(loaded.kernel), grid, block, 0, arguments, 90);
}

}  // namespace linnet
