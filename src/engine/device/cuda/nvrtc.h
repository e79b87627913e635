// NVRTC, the compiler of CUDA source at run time: opened when the first source is compiled, needs no GPU. What it made
// is kept in the cache on disk.
#pragma once
#include <string>

namespace linnet {

bool has_nvrtc();
// Machine code for devices of a compute capability (90: sm_90). Error(kSystem) when NVRTC is not found,
// Error(kInternal) with the compiler's first lines when the source is wrong.
std::string compile_cuda(const std::string& source, int compute_capability);
// The same without the cache on disk; `log` gets what the compiler said.
std::string compile_cuda_uncached(const std::string& source, int compute_capability, std::string* log = nullptr);

}  // namespace linnet
