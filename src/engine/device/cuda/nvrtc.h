// NVRTC compiles CUDA source at run time, without a GPU. It is opened at first use; results are cached on disk.
#pragma once
#include <string>

namespace linnet {
bool has_nvrtc();
// Machine code for a compute capability (90: sm_90). Throws Error(kSystem) if NVRTC is not found, Error(kInternal) with
// the compiler's first lines if the source is wrong.
std::string compile_cuda(const std::string& source, int compute_capability);
// The same without the cache on disk; `log` gets the compiler's messages.
std::string compile_cuda_uncached(const std::string& source, int compute_capability, std::string* log = nullptr);
}  // namespace linnet
