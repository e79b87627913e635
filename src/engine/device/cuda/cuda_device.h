// A GPU: one stream with everything in order, and what its kernels share: handles of NVIDIA's libraries and a table of
// prepared operations (matmul plans, attention graphs, compiled expressions).
#pragma once
#include <cuda_runtime_api.h>
#include <any>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "base/error.h"
#include "engine/device/device.h"

namespace linnet {
// Errors of CUDA and of NVIDIA's libraries become Error(kSystem) that names the operation.

inline void cuda_check(cudaError_t status, const std::string& doing) {
  if (status != cudaSuccess) fail_system("CUDA: " + doing + ": " + cudaGetErrorString(status));
}

class CudaDevice : public Device {
 public:
  // Throws Error(kSystem) of one line without a driver or a GPU of this index.
  explicit CudaDevice(int index);
  ~CudaDevice() override;

  const DeviceInfo& info() const override { return info_; }
  std::byte* allocate(size_t bytes, const std::string& what) override;
  void release(std::byte* memory) noexcept override;
  std::byte* allocate_host(size_t bytes) override;
  void release_host(std::byte* memory) noexcept override;
  int64_t allocations() const override { return allocations_; }
  void upload(std::byte* to, const std::byte* from, size_t bytes) override;
  void download(std::byte* to, const std::byte* from, size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void wait() override;
  int64_t mark() override;
  void reached(int64_t mark) override;
  std::unique_ptr<Recording> record(FunctionRef<void()> work) override;
  void replay(const Recording& recording) override;
  // On a second stream inside a recording, elsewhere in order. LINNET_CUDA_ASIDE=off: in order.
  void aside(int64_t number, FunctionRef<void()> work) override;
  void after_aside(int64_t number) override;
  void launched(FunctionRef<std::string()> where_text) override;
  double timed(FunctionRef<void()> work) override;
  double joules() override;  // since the driver was loaded, by NVML, which is opened when it is first asked
  DeviceChoices choices() const override { return choices_; }
  void chose(const std::string& what, const std::string& how) { choices_.algorithms[what] = how; }

  // Also makes this GPU the calling thread's current one, as queueing requires: a process may have several.
  cudaStream_t stream() const;
  // Queues a kernel whose first line is begin_kernel() (engine/kernels/cuda/launch.cuh); `arguments`: a pointer to
  // each. From compute capability `waits_from` on, where that line waits, its blocks may start while a previous kernel
  // of launch() still runs. After NVIDIA's kernels this was no faster overall. LINNET_CUDA_OVERLAP=off: never overlaps.
  void launch(const void* kernel, dim3 grid, dim3 block, size_t shared, void** arguments, int waits_from);
  int index() const { return index_; }
  bool recording() const { return recording_; }
  int compute_capability() const { return compute_capability_; }  // 90 for sm_90
  // The GPU's name and what its libraries' choices depend on, for keys of caches on disk.
  const std::string& fingerprint() const { return fingerprint_; }

  // Returns what `make` prepares once per kind of operation. The key names the operation and all it depends on. The
  // first call must not be inside a recording; the first run of a plan never is.
  template <class T> T& prepared(const std::string& key, const std::function<std::shared_ptr<T>()>& make) {
    std::shared_ptr<void>& location = prepared_[key];
    if (!location) location = make();
    return *static_cast<T*>(location.get());
  }

 private:
  bool forks() const;

  int index_;
  DeviceInfo info_;
  std::string fingerprint_;
  int compute_capability_ = 0;
  cudaStream_t stream_ = nullptr, side_ = nullptr;
  bool is_aside_ = false;            // what is queued goes to side_
  mutable bool queued_own_ = false;  // launch() was the last that queued anything
  cudaEvent_t forked_ = nullptr;
  std::vector<cudaEvent_t> asides_;  // their ends, by number
  // The newest marks: mark m is event m % size, until a later one replaces it.
  std::array<cudaEvent_t, 16> events_{};
  int64_t marks_ = 0;
  cudaEvent_t began_ = nullptr, ended_ = nullptr;
  std::string last_op_;
  bool recording_ = false, check_each_op_ = false, poisons_ = false, overlaps_ = true;
  int64_t allocations_ = 0;
  std::map<std::string, std::shared_ptr<void>> prepared_;
  DeviceChoices choices_;
};
}  // namespace linnet
