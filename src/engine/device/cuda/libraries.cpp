#include "engine/device/cuda/libraries.h"
#include <dlfcn.h>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include "base/error.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

void add_existing(std::vector<std::string>& folders, const fs::path& folder) {
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) folders.push_back(folder.string());
}

// <environment>/lib/python3.x/site-packages/nvidia/<package>/lib, of an activated environment or beside `python3`.
void add_python(std::vector<std::string>& folders, const fs::path& environment) {
  std::error_code ignored;
  for (const auto& python : fs::directory_iterator(environment / "lib", ignored)) {
    const fs::path nvidia = python.path() / "site-packages" / "nvidia";
    for (const auto& package : fs::directory_iterator(nvidia, ignored)) add_existing(folders, package.path() / "lib");
  }
}

fs::path python_environment() {
  if (const char* active = std::getenv("VIRTUAL_ENV")) return active;
  std::stringstream path(std::getenv("PATH") ? std::getenv("PATH") : "");
  std::error_code ignored;
  for (std::string folder; std::getline(path, folder, ':');)
    if (fs::exists(fs::path(folder) / "python3", ignored)) return fs::path(folder).parent_path();
  return "/usr/local";
}

std::vector<std::string> library_folders() {  // searched after the system's own
  std::vector<std::string> folders;
  std::stringstream given(std::getenv("LINNET_CUDA_LIBRARIES") ? std::getenv("LINNET_CUDA_LIBRARIES") : "");
  for (std::string folder; std::getline(given, folder, ':');) add_existing(folders, folder);
  add_existing(folders, "/usr/local/cuda/lib64");
  add_existing(folders, "/usr/lib/x86_64-linux-gnu");
  add_python(folders, python_environment());
  return folders;
}
}  // namespace

void* find_library(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  for (const std::string& folder : library_folders())
    for (const std::string& name : names)
      if (void* library = dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

const std::vector<std::string> kCublasLt{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
const std::vector<std::string> kCudnn{"libcudnn.so.9", "libcudnn.so"};
const std::vector<std::string> kNvrtc{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

bool has_cudnn() { return find_library(kCudnn) != nullptr; }

std::string library_versions() {
  const auto found = [](const std::string& name, const std::vector<std::string>& files, auto&& version) {
    void* library = find_library(files);
    return library ? name + " " + version(library) : "no " + name;
  };
  const auto of_number = [](const char* function) {  // 130100 is 13.1.0, 91900 is 9.19.0
    return [=](void* library) {
      const auto number_of = reinterpret_cast<size_t (*)()>(dlsym(library, function));
      const size_t number = number_of ? number_of() : 0;
      return std::to_string(number / 10000) + "." + std::to_string(number % 10000 / 100) + "." +
             std::to_string(number % 100);
    };
  };
  const auto of_nvrtc = [](void* library) {
    const auto version = reinterpret_cast<int (*)(int*, int*)>(dlsym(library, "nvrtcVersion"));
    int major = 0, minor = 0;
    if (version) version(&major, &minor);
    return std::to_string(major) + "." + std::to_string(minor);
  };
  return found("cuBLASLt", kCublasLt, of_number("cublasLtGetVersion")) + ", " +
         found("cuDNN", kCudnn, of_number("cudnnGetVersion")) + ", " + found("NVRTC", kNvrtc, of_nvrtc);
}

OpenLibrary::OpenLibrary(const std::vector<std::string>& names) : handle_(find_library(names)) {
  if (handle_) return;
  std::string locations;
  for (const std::string& folder : library_folders()) locations += ", " + folder;
  fail_system("cannot find " + names.front() + " (looked in the system's folders" + locations +
              "; LINNET_CUDA_LIBRARIES names others)");
}

OpenLibrary::Symbol OpenLibrary::operator()(const char* name) const {
  void* symbol = dlsym(handle_, name);
  if (!symbol) fail_system("a library of CUDA has no function " + std::string(name));
  return {symbol};
}
}  // namespace linnet
