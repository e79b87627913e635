#include "engine/device/cuda/nvrtc.h"
#include <dlfcn.h>
#include <array>
#include "base/fail.h"
#include "engine/device/cuda/libraries.h"
#include "engine/device/disk_cache.h"

namespace linnet {
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

void check(int result, const char* doing) {
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
  check(nvrtc().version(&major, &minor), "asking for its version");
  return std::to_string(major) + "." + std::to_string(minor);
}
}  // namespace

bool has_nvrtc() { return find_library(kNvrtc) != nullptr; }

std::string compile_cuda_uncached(const std::string& source, int compute_capability, std::string* log) {
  OwnedProgram owned;
  check(nvrtc().create(&owned.program, source.c_str(), "linnet.cu", 0, nullptr, nullptr), "taking a source");
  const std::string architecture = "--gpu-architecture=sm_" + std::to_string(compute_capability);
  const std::array options{architecture.c_str(), "--std=c++17"};
  const int result = nvrtc().compile(owned.program, static_cast<int>(options.size()), options.data());
  const std::string said = log_of(owned.program);
  if (log) *log = said;
  if (result != 0) fail_internal("NVRTC: ", nvrtc().error_text(result), ": ", said.substr(0, 2000));
  size_t size = 0;
  check(nvrtc().cubin_size(owned.program, &size), "asking for the machine code's size");
  std::string cubin(size, 0);
  check(nvrtc().cubin(owned.program, cubin.data()), "taking the machine code");
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
