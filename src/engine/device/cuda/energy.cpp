#include "engine/device/cuda/energy.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "engine/device/cuda/libraries.h"

namespace linnet {
namespace {

// The few functions of nvml.h that are used (NVML API reference, "Device queries").
using Handle = void*;
struct Nvml {
  int (*init)() = nullptr;
  int (*by_bus)(const char*, Handle*) = nullptr;
  int (*energy)(Handle, unsigned long long*) = nullptr;
};

Nvml open_nvml() {
  Nvml nvml;
  void* library = find_library({"libnvidia-ml.so.1", "libnvidia-ml.so"});
  if (!library) return nvml;
  nvml.init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  nvml.by_bus = reinterpret_cast<int (*)(const char*, Handle*)>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
  nvml.energy =
      reinterpret_cast<int (*)(Handle, unsigned long long*)>(dlsym(library, "nvmlDeviceGetTotalEnergyConsumption"));
  if (!nvml.init || !nvml.by_bus || nvml.init() != 0) nvml.energy = nullptr;
  return nvml;
}

}  // namespace

double gpu_joules(int index) {
  static const Nvml nvml = open_nvml();
  char bus[64];
  Handle handle = nullptr;
  unsigned long long millijoules = 0;
  if (!nvml.energy || cudaDeviceGetPCIBusId(bus, sizeof bus, index) != cudaSuccess || nvml.by_bus(bus, &handle) != 0 ||
      nvml.energy(handle, &millijoules) != 0)
    return -1;
  return static_cast<double>(millijoules) * 1e-3;
}

}  // namespace linnet
