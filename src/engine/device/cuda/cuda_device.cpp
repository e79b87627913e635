#include "engine/device/cuda/cuda_device.h"
#include <dlfcn.h>
#include <cstdlib>
#include "base/log.h"
#include "base/process.h"
#include "engine/device/cuda/libraries.h"

namespace linnet {
namespace {
struct CudaRecording : Recording {
  explicit CudaRecording(cudaGraphExec_t graph) : graph(graph) {}
  ~CudaRecording() override { cudaGraphExecDestroy(graph); }
  cudaGraphExec_t graph;
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void select_device(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice || status == cudaErrorStubLibrary)
    fail_system("no NVIDIA driver or GPU on this machine (" + std::string(cudaGetErrorString(status)) + ")");
  cuda_check(status, "counting the GPUs");
  if (index >= count)
    fail_system("there is no cuda:" + std::to_string(index) + "; this machine has " + std::to_string(count) +
                (count == 1 ? " GPU" : " GPUs"));
  cuda_check(cudaSetDevice(index), "opening cuda:" + std::to_string(index));
}

// The used functions of nvml.h (NVML API reference, "Device queries").
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

CudaDevice::CudaDevice(int index)
    : index_(index), check_each_op_(std::getenv("LINNET_CUDA_CHECK") != nullptr),
      poisons_(std::getenv("LINNET_CUDA_POISON") != nullptr) {
  select_device(index);
  cudaDeviceProp properties;
  cuda_check(cudaGetDeviceProperties(&properties, index), "reading the GPU's properties");
  compute_capability_ = properties.major * 10 + properties.minor;
  if (compute_capability_ < 80)
    fail_system(std::string(properties.name) + " has compute capability " + std::to_string(properties.major) + "." +
                std::to_string(properties.minor) + "; Linnet needs 8.0 or more");
  overlaps_ = !switched_off("LINNET_CUDA_OVERLAP");
  int driver = 0, runtime = 0;
  cuda_check(cudaDriverGetVersion(&driver), "reading the driver's version");
  cuda_check(cudaRuntimeGetVersion(&runtime), "reading the runtime's version");
  cuda_check(cudaMemGetInfo(&info_.free_bytes, &info_.memory_bytes), "reading the GPU's memory");
  info_.name = properties.name;
  info_.detail = "cuda:" + std::to_string(index) + ", compute capability " + std::to_string(properties.major) + "." +
                 std::to_string(properties.minor) + ", driver for CUDA " + version_text(driver) + ", runtime " +
                 version_text(runtime) + ", " + library_versions();
  if (!has_cudnn() && !switched_off("LINNET_CUDNN"))
    log_warning(
        "no cuDNN is found: attention and convolutions are Linnet's own kernels, which take longer "
        "(LINNET_CUDA_LIBRARIES names its folder; LINNET_CUDNN=off: without this warning)");
  fingerprint_ = info_.name + " " + std::to_string(compute_capability_) + " " + std::to_string(driver);
  // Asides get the lowest priority: they must not delay what others wait for.
  int least = 0, greatest = 0;
  cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "reading priorities");
  cuda_check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "creating a stream");
  cuda_check(cudaStreamCreateWithPriority(&side_, cudaStreamNonBlocking, least), "creating a stream");
  cuda_check(cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming), "creating an event");
  for (cudaEvent_t& event : events_)
    cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  cuda_check(cudaEventCreate(&began_), "creating an event");
  cuda_check(cudaEventCreate(&ended_), "creating an event");
}

CudaDevice::~CudaDevice() {
  prepared_.clear();
  cudaSetDevice(index_);
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
  for (cudaEvent_t event : asides_) cudaEventDestroy(event);
  cudaEventDestroy(began_), cudaEventDestroy(ended_), cudaEventDestroy(forked_);
  cudaStreamDestroy(stream_), cudaStreamDestroy(side_);
}

std::byte* CudaDevice::allocate(size_t bytes, const std::string& what) {
  cudaSetDevice(index_);
  void* memory = nullptr;
  if (const cudaError_t status = cudaMalloc(&memory, bytes); status != cudaSuccess) {
    cudaGetLastError();  // it is told here
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    fail_system(info_.name + " has no " + std::to_string(bytes >> 20) + " MiB for " + what + "; " +
                std::to_string(free >> 20) + " MiB are free");
  }
  // Nothing relies on the zeros; they make errors reproducible.
  cuda_check(cudaMemsetAsync(memory, poisons_ ? 0xff : 0, bytes, stream()), "clearing memory");
  ++allocations_;
  return static_cast<std::byte*>(memory);
}

void CudaDevice::release(std::byte* memory) noexcept {
  cudaStreamSynchronize(stream());
  cudaFree(memory);
}

std::byte* CudaDevice::allocate_host(size_t bytes) {
  cudaSetDevice(index_);
  void* memory = nullptr;
  cuda_check(cudaMallocHost(&memory, bytes), "taking " + std::to_string(bytes >> 10) + " KiB of pinned memory");
  ++allocations_;
  return static_cast<std::byte*>(memory);
}

void CudaDevice::release_host(std::byte* memory) noexcept {
  cudaStreamSynchronize(stream());
  cudaFreeHost(memory);
}

void CudaDevice::upload(std::byte* to, const std::byte* from, size_t bytes) {
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()), "copying to the GPU");
}
void CudaDevice::download(std::byte* to, const std::byte* from, size_t bytes) {
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()), "copying from the GPU");
}
void CudaDevice::copy(std::byte* to, const std::byte* from, size_t bytes) {
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream()), "copying on the GPU");
}

void CudaDevice::wait() {
  cuda_check(
      cudaStreamSynchronize(stream()), last_op_.empty() ? "running" : "running, at " + last_op_ + " or before it");
}

int64_t CudaDevice::mark() {
  ++marks_;
  cuda_check(cudaEventRecord(events_[static_cast<size_t>(marks_) % events_.size()], stream()), "marking the stream");
  return marks_;
}
void CudaDevice::reached(int64_t mark) {
  if (mark == 0) return;
  cuda_check(cudaEventSynchronize(events_[static_cast<size_t>(mark) % events_.size()]),
      last_op_.empty() ? "running" : "running, at " + last_op_ + " or before it");
}

std::unique_ptr<Recording> CudaDevice::record(FunctionRef<void()> work) {
  cuda_check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "beginning a recording");
  recording_ = true;
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    recording_ = is_aside_ = false;
    cudaStreamEndCapture(stream(), &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  recording_ = false;
  cuda_check(cudaStreamEndCapture(stream(), &graph), "ending a recording");
  size_t nodes = 0;
  cuda_check(cudaGraphGetNodes(graph, nullptr, &nodes), "counting the launches of a recorded step");
  choices_.recordings.push_back(static_cast<int64_t>(nodes));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  cuda_check(status, "preparing a recorded step");
  cuda_check(cudaGraphUpload(exec, stream()), "uploading a recorded step");
  return std::make_unique<CudaRecording>(exec);
}

void CudaDevice::replay(const Recording& recording) {
  cuda_check(
      cudaGraphLaunch(static_cast<const CudaRecording&>(recording).graph, stream()), "launching a recorded step");
}

void CudaDevice::launch(const void* kernel, dim3 grid, dim3 block, size_t shared, void** arguments, int waits_from) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  const bool overlaps = overlaps_ && compute_capability_ >= waits_from && queued_own_;  // stream() forgets the last
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared, config.stream = stream();
  config.attrs = &overlap, config.numAttrs = overlaps ? 1 : 0;
  cuda_check(cudaLaunchKernelExC(&config, kernel, arguments), "launching a kernel");
  queued_own_ = true;
}

bool CudaDevice::forks() const {
  static const bool in_order = switched_off("LINNET_CUDA_ASIDE");
  return recording_ && !in_order;
}
void CudaDevice::aside(int64_t number, FunctionRef<void()> work) {
  if (!forks()) return work();
  while (asides_.size() <= static_cast<size_t>(number)) {
    asides_.push_back(nullptr);
    cuda_check(cudaEventCreateWithFlags(&asides_.back(), cudaEventDisableTiming), "creating an event");
  }
  cuda_check(cudaEventRecord(forked_, stream()), "marking the stream");
  cuda_check(cudaStreamWaitEvent(side_, forked_, 0), "beginning work aside");
  is_aside_ = true;
  work();
  is_aside_ = queued_own_ = false;
  cuda_check(cudaEventRecord(asides_[number], side_), "marking the stream");
}
void CudaDevice::after_aside(int64_t number) {
  if (!forks()) return;
  cuda_check(cudaStreamWaitEvent(stream(), asides_[number], 0), "waiting for work aside");
}

// LINNET_CUDA_CHECK=1 waits after every op of a first run, so that a fault names its op.
void CudaDevice::launched(FunctionRef<std::string()> where_text) {
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) cuda_check(status, where_text());
  if (recording_) return;
  last_op_ = where_text();
  if (check_each_op_) wait();
}

double CudaDevice::timed(FunctionRef<void()> work) {
  cuda_check(cudaEventRecord(began_, stream()), "marking the stream");
  work();
  cuda_check(cudaEventRecord(ended_, stream()), "marking the stream");
  wait();
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, began_, ended_), "reading the time");
  return milliseconds * 1e-3;
}

cudaStream_t CudaDevice::stream() const {
  cudaSetDevice(index_);
  queued_own_ = false;
  return is_aside_ ? side_ : stream_;
}

double CudaDevice::joules() {
  static const Nvml nvml = open_nvml();
  char bus[64];
  Handle handle = nullptr;
  unsigned long long millijoules = 0;
  if (!nvml.energy || cudaDeviceGetPCIBusId(bus, sizeof bus, index_) != cudaSuccess || nvml.by_bus(bus, &handle) != 0 ||
      nvml.energy(handle, &millijoules) != 0)
    return -1;
  return static_cast<double>(millijoules) * 1e-3;
}
}  // namespace linnet
