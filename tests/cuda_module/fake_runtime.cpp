// CUDA's runtime for tests without a GPU: the functions that src/engine/device/cuda calls, with the rules of stream
// capture (CUDA C++ Programming Guide, "CUDA Graphs"). Two GPUs, which are emulated devices: memory is closed to the
// host, work is done when somebody waits, kernels run as fibers. A call that capture forbids spoils the capture, as on
// a GPU.
#include "cuda_module/fake_runtime.h"
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <vector>
#include "base/error.h"
#include "cuda_emulation/emulated_device.h"

using linnet::EmulatedDevice;
using linnet::Recording;
using Clock = std::chrono::steady_clock;

struct CUstream_st {
  int gpu = 0;
  bool capturing = false, spoiled = false;
  int64_t queued_before = 0;  // before the capture
  // Of a stream that another one's capture went over to: that one, and whether it has work that nobody waits for.
  CUstream_st* origin = nullptr;
  bool unjoined = false;
};
struct CUevent_st {
  int gpu = 0;
  int64_t mark = 0;
  cudaStream_t captured_on = nullptr;
  std::shared_ptr<Clock::time_point> when = std::make_shared<Clock::time_point>();
};
struct CUgraph_st {
  int gpu = 0;
  std::shared_ptr<Recording> recording;
  size_t nodes = 0;  // kernels, copies and fills
};
struct CUgraphExec_st {
  CUgraph_st graph;
};

namespace {
constexpr int kGpus = 2;

struct Block {
  int gpu;
  size_t bytes;
};

struct Runtime {
  EmulatedDevice gpus[kGpus];
  std::map<std::byte*, Block> memory;         // by their begins
  std::map<const std::byte*, size_t> pinned;  // host memory that copies may use while they are captured
  std::vector<std::unique_ptr<CUstream_st>> streams;
  int current = 0;
  int64_t queued = 0, copied_to_host = 0;
  bool only_counts = false;
  char machine = 0;
  cudaError_t last = cudaSuccess;
};

Runtime& runtime() {
  static auto& runtime = *new Runtime;  // lives as long as static objects that use it
  return runtime;
}

EmulatedDevice& gpu() { return runtime().gpus[runtime().current]; }

void queue(int gpu, std::function<void()> task) {
  ++runtime().queued;
  if (!runtime().only_counts) runtime().gpus[gpu].queue(std::move(task));
}

cudaError_t failed(cudaError_t error) { return runtime().last = error; }

// What must not be called while any stream of the thread captures: it waits, or takes memory.
cudaError_t unless_capturing() {
  for (const auto& stream : runtime().streams)
    if (stream->capturing) return stream->spoiled = true, failed(cudaErrorStreamCaptureUnsupported);
  return cudaSuccess;
}

// Work is queued on a stream of the current GPU.
cudaError_t usable(cudaStream_t stream) {
  if (!stream) return failed(cudaErrorInvalidResourceHandle);  // the default stream waits for all others
  if (stream->gpu != runtime().current) return failed(cudaErrorInvalidResourceHandle);
  stream->unjoined = stream->origin != nullptr;
  return cudaSuccess;
}

// Address space, which is never given back.
std::byte* reserved(size_t bytes) {
  return static_cast<std::byte*>(mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

bool is_pinned(const void* memory, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(memory);
  auto after = runtime().pinned.upper_bound(begin);
  if (after == runtime().pinned.begin()) return false;
  --after;
  return begin + bytes <= after->first + after->second;
}
}  // namespace

namespace linnet::testing {
void queue_on_stream(cudaStream_t stream, std::function<void()> task) {
  if (usable(stream) != cudaSuccess) fail_internal("a kernel is launched on a stream of another GPU");
  queue(stream->gpu, std::move(task));
}

int current_gpu() { return runtime().current; }
int64_t queued_so_far() { return runtime().queued; }
int64_t copied_to_host() { return runtime().copied_to_host; }
void only_count() { runtime().only_counts = true; }
void be_machine(int number) { runtime().machine = static_cast<char>(number); }
}  // namespace linnet::testing

extern "C" void linnet_fake_queue(cudaStream_t stream, void (*run)(void*), void* what) {
  linnet::testing::queue_on_stream(stream, [run, what = std::shared_ptr<void>(what, std::free)] { run(what.get()); });
}

extern "C" bool linnet_fake_is_device_memory(const void* memory, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(memory);
  return std::ranges::any_of(runtime().memory, [&](const auto& one) {
    const auto& [block, kind] = one;
    return kind.gpu == runtime().current && block <= begin && begin + bytes <= block + kind.bytes;
  });
}

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) { return *count = kGpus, cudaSuccess; }
cudaError_t cudaSetDevice(int index) {
  if (index < 0 || index >= kGpus) return failed(cudaErrorInvalidDevice);
  return runtime().current = index, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  *properties = {};
  std::strcpy(properties->name, "fake GPU");
  properties->major = 8, properties->minor = 6;
  properties->uuid.bytes[0] = runtime().machine, properties->uuid.bytes[1] = static_cast<char>(index);
  return index < kGpus ? cudaSuccess : failed(cudaErrorInvalidDevice);
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return *free = *total = size_t{4} << 30, cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char*, int, int) { return failed(cudaErrorNotSupported); }
cudaError_t cudaGetLastError() { return std::exchange(runtime().last, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorStreamCaptureUnsupported) return "operation not permitted when stream is capturing";
  if (error == cudaErrorStreamCaptureInvalidated) return "operation failed due to a previous error during capture";
  return "an error of the fake runtime";
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t error = unless_capturing()) return error;
  std::byte* const block = runtime().only_counts ? reserved(bytes) : gpu().allocate(bytes, "test");
  runtime().memory[block] = {runtime().current, bytes};
  return *memory = block, cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (!memory) return cudaSuccess;
  if (const cudaError_t error = unless_capturing()) return error;
  const auto found = runtime().memory.find(static_cast<std::byte*>(memory));
  if (found == runtime().memory.end()) return failed(cudaErrorInvalidValue);
  if (!runtime().only_counts) runtime().gpus[found->second.gpu].release(found->first);
  runtime().memory.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  if (const cudaError_t error = unless_capturing()) return error;
  auto* const block = static_cast<std::byte*>(std::malloc(bytes));
  runtime().pinned[block] = bytes;
  return *memory = block, cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  if (const cudaError_t error = unless_capturing()) return error;
  runtime().pinned.erase(static_cast<std::byte*>(memory));
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t error = usable(stream)) return error;
  const void* const host = kind == cudaMemcpyHostToDevice ? from : kind == cudaMemcpyDeviceToHost ? to : nullptr;
  if (host && !is_pinned(host, bytes))
    if (const cudaError_t error = unless_capturing()) return error;
  queue(stream->gpu, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = usable(stream)) return error;
  queue(stream->gpu, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  runtime().streams.push_back(std::make_unique<CUstream_st>(CUstream_st{runtime().current}));
  return *stream = runtime().streams.back().get(), cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
// A stream that waits for an event of a captured one is captured too, until the first waits for it.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const cudaError_t error = usable(stream)) return error;
  const cudaStream_t other = event->captured_on;
  if (!other || !other->capturing) return failed(cudaErrorStreamCaptureIsolation);
  if (other == stream->origin || !stream->capturing) {
    stream->origin = other, stream->capturing = stream->unjoined = true;
  } else if (other->origin == stream) {
    other->unjoined = false;
  }
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::erase_if(runtime().streams, [&](const auto& own) { return own.get() == stream; });
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = unless_capturing()) return error;
  return runtime().gpus[stream->gpu].wait(), cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capturing) return failed(cudaErrorIllegalState);
  stream->capturing = true, stream->spoiled = false, stream->queued_before = runtime().queued;
  return runtime().gpus[stream->gpu].begin_recording(), cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  std::shared_ptr<Recording> recording = runtime().gpus[stream->gpu].end_recording();
  stream->capturing = false;
  for (const auto& other : runtime().streams) {
    if (other->origin != stream) continue;
    stream->spoiled |= other->spoiled || std::exchange(other->unjoined, false);
    other->capturing = other->spoiled = false, other->origin = nullptr;
  }
  if (stream->spoiled) return *graph = nullptr, failed(cudaErrorStreamCaptureInvalidated);
  return *graph = new CUgraph_st{stream->gpu, std::move(recording),
             static_cast<size_t>(runtime().queued - stream->queued_before)},
         cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new CUevent_st{runtime().current}, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = usable(stream)) return error;
  EmulatedDevice& device = runtime().gpus[stream->gpu];
  device.queue([when = event->when] { *when = Clock::now(); });
  event->captured_on = stream->capturing ? stream : nullptr;
  if (!stream->capturing) event->mark = device.mark();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = unless_capturing()) return error;
  return runtime().gpus[event->gpu].reached(event->mark), cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = std::chrono::duration<float, std::milli>(*to->when - *from->when).count();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (const cudaError_t error = unless_capturing()) return error;
  return *exec = new CUgraphExec_st{*graph}, cudaSuccess;
}
// Kernels come here as functions of the emulation, never as machine code.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) { return cudaErrorNotSupported; }
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  return *count = graph->nodes, cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) { return usable(stream); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (const cudaError_t error = usable(stream)) return error;
  return runtime().gpus[stream->gpu].replay(*exec->graph.recording), cudaSuccess;
}

}  // extern "C"
