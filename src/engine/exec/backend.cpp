#include "engine/exec/backend.h"
#include <dlfcn.h>
#include <mutex>
#include "base/fail.h"
#include "base/numbers.h"
#include "base/process.h"
#include "distributed/comm/world.h"

namespace linnet {
namespace {
constexpr int kNoCuda = -1, kAnyGpu = -2;

int cuda_index(const std::string& device) {
  if (device == "cuda") return kAnyGpu;
  const auto index = parse_number<int>(device.starts_with("cuda:") ? device.substr(5) : "");
  return index >= 0 ? *index : kNoCuda;
}

void* load_cuda_module() {
  const ModuleSearch search = search_module("liblinnet_cuda.so", "LINNET_CUDA_MODULE");
  if (search.found.empty())
    throw Error(ErrorKind::kSystem, "this program has no CUDA module, a part of builds for GPUs (looked for " +
                                        search.looked + "); docs/gpu.md tells how to build it");
  return load_module(search.found, "CUDA", "linnet_cuda_open", RTLD_LOCAL);  // which keeps its symbols its own
}

// The module's `linnet_cuda_count`: the number of GPUs.
using CountGpus = int (*)();

template <class Function>  // null if the module has no such function
Function module_function(const char* name) {
  static void* const module = load_cuda_module();
  return reinterpret_cast<Function>(dlsym(module, name));
}

// Ranks that a starter has put on one machine take its GPUs in turn. Slurm may show each only its own.
int gpu_of_rank() {
  const std::optional<Starter> starter = find_starter();
  if (!starter || starter->rank_here == 0) return 0;
  const auto count = module_function<CountGpus>("linnet_cuda_count");
  const int gpus = count ? count() : 0;
  return gpus > 0 ? starter->rank_here % gpus : 0;
}

const Backend* open_cuda(int index) {
  const auto open = module_function<OpenBackend>("linnet_cuda_open");
  std::array<char, 1024> message{};
  const Backend* backend = open(backend_version(), index, message.data(), message.size());
  if (!backend) fail_user(message.data());
  return backend;
}
}  // namespace

// Raise the number whenever Device, Backend or what kernels are given changes.
const char* backend_version() { return "linnet " LINNET_VERSION ", backend 5, " __VERSION__; }

const Backend& open_backend(const std::string& device) {
  static std::mutex mutex;
  static std::map<int, const Backend*> opened;
  if (device == "cpu") return cpu_backend();
  int index = cuda_index(device);
  if (index == kNoCuda) fail_user("unknown device \"", device, "\"; there are cpu, cuda and cuda:N");
  const std::lock_guard lock(mutex);
  if (index == kAnyGpu) index = gpu_of_rank();
  const auto [location, is_new] = opened.try_emplace(index);
  if (is_new || !location->second) location->second = open_cuda(index);
  return *location->second;
}

JoinedDevices join_devices(const Backend& backend, Communicator& world) {
  if (backend.device->is_host()) return {};
  const auto join = module_function<JoinDevices>("linnet_cuda_join");
  if (!join) return {nullptr, "this device's module moves nothing between devices"};
  JoinedDevices joined;
  join(*backend.device, world, joined);
  return joined;
}
}  // namespace linnet
