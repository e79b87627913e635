#include "exec/backend.h"

#include <dlfcn.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "base/error.h"

namespace linnet {
namespace {

// -1: not a CUDA device's name.
int cuda_index(const std::string& device) {
  if (device == "cuda") return 0;
  if (!device.starts_with("cuda:")) return -1;
  int index = -1;
  const char* end = device.data() + device.size();
  const auto [stop, problem] = std::from_chars(device.data() + 5, end, index);
  return problem == std::errc() && stop == end ? index : -1;
}

constexpr const char* kModule = "liblinnet_cuda.so";

std::vector<std::filesystem::path> module_places() {
  if (const char* given = std::getenv("LINNET_CUDA_MODULE")) return {given};
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  // Installed beside the program or in its library folder; in a build tree.
  return {folder / kModule, folder / "../lib/linnet" / kModule, folder / "../cuda" / kModule};
}

OpenBackend load_module() {
  std::string looked;
  for (const auto& location : module_places()) {
    looked += (looked.empty() ? "" : ", ") + location.lexically_normal().string();
    if (!std::filesystem::exists(location)) continue;
    // Its symbols stay its own; it is never unloaded.
    void* module = dlopen(location.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!module) fail_user("cannot load the CUDA module: " + std::string(dlerror()));
    auto open = reinterpret_cast<OpenBackend>(dlsym(module, "linnet_cuda_open"));
    if (!open) fail_user(location.string() + " is not Linnet's CUDA module");
    return open;
  }
  fail_user("this program has no CUDA module; build it with `./dev gpu build` (looked for " + looked + ")");
}

const Backend* open_cuda(int index) {
  const OpenBackend open = load_module();
  std::array<char, 1024> message{};
  const Backend* backend = open(backend_version(), index, message.data(), message.size());
  if (!backend) fail_user(message.data());
  return backend;
}

}  // namespace

// The number in the middle: raised whenever Device, Backend or what kernels are given changes.
const char* backend_version() { return "linnet " LINNET_VERSION ", backend 4, " __VERSION__; }

const Backend& open_backend(const std::string& device) {
  static std::mutex mutex;
  static std::map<int, const Backend*> opened;
  if (device == "cpu") return cpu_backend();
  const int index = cuda_index(device);
  if (index < 0) fail_user("unknown device \"" + device + "\"; there are cpu, cuda and cuda:N");
  const std::lock_guard lock(mutex);
  const auto [location, is_new] = opened.try_emplace(index);
  if (is_new || !location->second) location->second = open_cuda(index);
  return *location->second;
}

}  // namespace linnet
