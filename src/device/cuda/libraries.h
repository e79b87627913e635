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

// Folders that are looked into, after the system's own.
std::vector<std::string> library_folders();

}  // namespace linnet
