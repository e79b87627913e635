// NVIDIA's libraries are opened when the first kernel needs them: from where the system finds them,
// LINNET_CUDA_LIBRARIES (folders, separated by colons), the toolkit, or a PyTorch installation. The module itself
// therefore loads without them.
#pragma once
#include <string>
#include <vector>

namespace linnet {

// A handle of dlopen; names are tried in order in every place. Null when there is none.
void* find_library(const std::vector<std::string>& names);
// Error(kSystem) naming the library and where it was looked for.
void* open_library(const std::vector<std::string>& names);
// Error(kSystem) naming the function.
void* find_symbol(void* library, const char* name);
// The same into a pointer of the function's type.
template <class Function>
void find_symbol(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(find_symbol(library, name));
}

}  // namespace linnet
