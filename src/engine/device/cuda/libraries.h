// Opens NVIDIA's libraries at first use, so that the module loads without them: from the system's folders,
// LINNET_CUDA_LIBRARIES (folders, separated by colons), the toolkit, or a PyTorch installation.
#pragma once
#include <string>
#include <vector>

namespace linnet {
extern const std::vector<std::string> kCublasLt, kCudnn, kNvrtc;  // file names, newest first

// A handle of dlopen; tries the names in order in every folder. Null if there is none.
void* find_library(const std::vector<std::string>& names);

// An open library: `function = library("name")` makes of a name a pointer of the function's type.
class OpenLibrary {
 public:
  explicit OpenLibrary(const std::vector<std::string>& names);  // Error(kSystem) naming it and where it was looked for

  struct Symbol {
    void* address;
    template <class Function> operator Function*() const { return reinterpret_cast<Function*>(address); }
  };
  Symbol operator()(const char* name) const;  // Error(kSystem) naming the function

 private:
  void* handle_;
};

// Versions of the libraries found, "cuBLASLt 13.1.0, cuDNN 9.19.0, NVRTC 13.0"; "no cuDNN" for a missing one.
std::string library_versions();
bool has_cudnn();

// NVRTC compiles CUDA source at run time, without a GPU. It is opened at first use; results are cached on disk.
bool has_nvrtc();
// Machine code for a compute capability (90: sm_90). Throws Error(kSystem) if NVRTC is not found, Error(kInternal) with
// the compiler's first lines if the source is wrong.
std::string compile_cuda(const std::string& source, int compute_capability);
// The same without the cache on disk; `log` gets the compiler's messages.
std::string compile_cuda_uncached(const std::string& source, int compute_capability, std::string* log = nullptr);
}  // namespace linnet
