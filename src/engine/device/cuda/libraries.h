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
}  // namespace linnet
