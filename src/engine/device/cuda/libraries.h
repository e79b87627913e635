// NVIDIA's libraries are opened when the first kernel needs them: from where the system finds them,
// LINNET_CUDA_LIBRARIES (folders, separated by colons), the toolkit, or a PyTorch installation. The module itself
// therefore loads without them.
#pragma once
#include <string>
#include <vector>

namespace linnet {

// Their files, the newest first.
extern const std::vector<std::string> kCublasLt, kCudnn, kNvrtc;

// A handle of dlopen; names are tried in order in every place. Null when there is none.
void* find_library(const std::vector<std::string>& names);

// An open library: `function = library("name")` makes of a name a pointer of the function's type.
class OpenLibrary {
 public:
  explicit OpenLibrary(const std::vector<std::string>& names);  // Error(kSystem) naming it and where it was looked for

  struct Symbol {
    void* address;
    template <class Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(address);
    }
  };
  Symbol operator()(const char* name) const;  // Error(kSystem) naming the function

 private:
  void* handle_;
};

// "cuBLASLt 13.1.0, cuDNN 9.19.0, NVRTC 13.0": what is found of the libraries that kernels may want, "no cuDNN" for
// what is not.
std::string library_versions();
bool has_cudnn();

}  // namespace linnet
