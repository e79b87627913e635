#include "engine/device/cuda/libraries.h"
#include <dlfcn.h>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include "base/error.h"
#include "base/fail.h"
#include "base/process.h"
#include "engine/device/disk_cache.h"

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
  std::stringstream path(environment("PATH"));
  std::error_code ignored;
  for (std::string folder; std::getline(path, folder, ':');)
    if (fs::exists(fs::path(folder) / "python3", ignored)) return fs::path(folder).parent_path();
  return "/usr/local";
}

std::vector<std::string> library_folders() {  // searched after the system's own
  std::vector<std::string> folders;
  std::stringstream given(environment("LINNET_CUDA_LIBRARIES"));
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

namespace {
// The used part of nvrtc.h (NVRTC documentation, CUDA 12 and 13): results are 0 for success.
using Program = void*;
struct Nvrtc {
  OpenLibrary library{kNvrtc};
  int (*version)(int* major, int* minor) = library("nvrtcVersion");
  const char* (*error_text)(int result) = library("nvrtcGetErrorString");
  int (*create)(Program*, const char* source, const char* name, int, const char* const*, const char* const*) = library(
      "nvrtcCreateProgram");
  int (*compile)(Program, int count, const char* const* options) = library("nvrtcCompileProgram");
  int (*log_size)(Program, size_t*) = library("nvrtcGetProgramLogSize");
  int (*log)(Program, char*) = library("nvrtcGetProgramLog");
  int (*cubin_size)(Program, size_t*) = library("nvrtcGetCUBINSize");
  int (*cubin)(Program, char*) = library("nvrtcGetCUBIN");
  int (*destroy)(Program*) = library("nvrtcDestroyProgram");
};

// NVRTC opens a second library by its bare name, which works only in the system's folders, or if it is open already.
void open_builtins(const Nvrtc& api) {
  Dl_info location{};
  int major = 0, minor = 0;
  if (api.version(&major, &minor) != 0 || !dladdr(reinterpret_cast<void*>(api.version), &location) ||
      !location.dli_fname)
    return;
  const std::string path = location.dli_fname;
  const std::string name = "libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor);
  if (path.find('/') != std::string::npos)
    dlopen((path.substr(0, path.rfind('/') + 1) + name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

const Nvrtc& nvrtc() {
  static const Nvrtc opened = [] {
    Nvrtc api;
    open_builtins(api);
    return api;
  }();
  return opened;
}

void check_nvrtc(int result, const char* doing) {
  if (result == 0) return;
  fail_system(std::string("NVRTC: ") + doing + ": " + nvrtc().error_text(result));
}

struct OwnedProgram {
  ~OwnedProgram() { nvrtc().destroy(&program); }
  Program program = nullptr;
};

std::string log_of(Program program) {
  size_t size = 0;
  if (nvrtc().log_size(program, &size) != 0 || size == 0) return "";
  std::string log(size, 0);
  if (nvrtc().log(program, log.data()) != 0) return "";
  log.resize(size - 1);  // ends in a NUL
  return log;
}

std::string version_text() {
  int major = 0, minor = 0;
  check_nvrtc(nvrtc().version(&major, &minor), "asking for its version");
  return std::to_string(major) + "." + std::to_string(minor);
}
}  // namespace

bool has_nvrtc() { return find_library(kNvrtc) != nullptr; }

std::string compile_cuda_uncached(const std::string& source, int compute_capability, std::string* log) {
  OwnedProgram owned;
  check_nvrtc(nvrtc().create(&owned.program, source.c_str(), "linnet.cu", 0, nullptr, nullptr), "taking a source");
  const std::string architecture = "--gpu-architecture=sm_" + std::to_string(compute_capability);
  const std::array options{architecture.c_str(), "--std=c++17"};
  const int result = nvrtc().compile(owned.program, static_cast<int>(options.size()), options.data());
  const std::string said = log_of(owned.program);
  if (log) *log = said;
  if (result != 0) fail_internal("NVRTC: ", nvrtc().error_text(result), ": ", said.substr(0, 2000));
  size_t size = 0;
  check_nvrtc(nvrtc().cubin_size(owned.program, &size), "asking for the machine code's size");
  std::string cubin(size, 0);
  check_nvrtc(nvrtc().cubin(owned.program, cubin.data()), "taking the machine code");
  return cubin;
}

std::string compile_cuda(const std::string& source, int compute_capability) {
  const std::string key = "NVRTC " + version_text() + " sm_" + std::to_string(compute_capability) + "\n" + source;
  if (auto kept = cached_bytes("nvrtc", key)) return *std::move(kept);
  const std::string cubin = compile_cuda_uncached(source, compute_capability);
  cache_bytes("nvrtc", key, cubin);
  return cubin;
}
}  // namespace linnet
