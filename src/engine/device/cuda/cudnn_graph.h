// cuDNN's graph interface: cuDNN makes plans (compiled kernels) of described tensors and operations. Only deterministic
// plans are used.
//
//   CudnnGraph graph;
//   const auto x = graph.tensor(CUDNN_DATA_BFLOAT16, {b, m, k}, strides), w = graph.tensor(...), y = graph.tensor(...);
//   graph.matmul(x, w, y);
//   std::shared_ptr<CudnnPlan> plan = graph.plan(CudnnTarget::of(device), &why);   // null: no plan, and why
//   plan->run(device, {{x, x_data}, {w, w_data}, {y, y_data}}, workspace);         // plan->workspace() bytes
//
// The library is opened at first use (libraries.h). Candidates can be found for a GPU that is only described by its
// properties as JSON; cuDNN then needs to load a libcuda.so.1, for which the toolkit's stub suffices.
#pragma once
#include <cudnn_graph.h>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "engine/device/cuda/cuda_device.h"

namespace linnet {
// cuDNN's version, as 91900; 0 without libcudnn, or with LINNET_CUDNN=off. Opens it.
size_t cudnn_version();
size_t cudnn_version(CudaDevice& device);  // also 0 if it cannot open this GPU; then warns once

// A descriptor, finalized or not. Error(kSystem) quotes cuDNN.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  ~CudnnDescriptor();

  CudnnDescriptor& set(
      cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, int64_t value) {
    return set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
    return set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.raw_);
  }
  void finalize();
  bool try_finalize(std::string* why);  // false, with the reason, if cuDNN refuses
  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

class CudnnTarget {
 public:
  static CudnnTarget of(CudaDevice& device);
  static CudnnTarget described(const std::string& json);
  const CudnnDescriptor& properties() const { return *properties_; }

 private:
  explicit CudnnTarget(std::shared_ptr<CudnnDescriptor> properties) : properties_(std::move(properties)) {}
  std::shared_ptr<CudnnDescriptor> properties_;
};

using CudnnValue = int64_t;  // a tensor of a graph: its unique id

class CudnnPlan {
 public:
  size_t workspace() const { return workspace_; }
  // Queues it. `memory`: of each tensor that is neither virtual nor a number. Not thread-safe.
  void run(CudaDevice& device, const std::vector<std::pair<CudnnValue, void*>>& memory, std::byte* workspace);

 private:
  friend class CudnnGraph;
  explicit CudnnPlan(CudnnDescriptor plan) : plan_(std::move(plan)) {}
  CudnnDescriptor plan_;
  size_t workspace_ = 0;
  std::vector<std::pair<CudnnValue, float>> numbers_;
};

class CudnnGraph {
 public:
  using Sizes = std::vector<int64_t>;
  static Sizes dense_strides(const Sizes& sizes);

  // In memory, found by the plan's `memory`; its address is a multiple of 16.
  CudnnValue tensor(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides);
  // A value between operations; dense without strides.
  CudnnValue between(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides = {});
  CudnnValue number(float value);  // a constant of rank 4

  struct Pointwise {
    CudnnValue b = 0, t = 0;  // the second operand; the condition of BINARY_SELECT
    int64_t axis = -1;        // of GEN_INDEX
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  };
  void pointwise(cudnnPointwiseMode_t mode, CudnnValue x, CudnnValue y,
      const Pointwise& options = {.b = 0, .t = 0, .axis = -1, .compute = CUDNN_DATA_FLOAT});
  // The same with a new value of `type` and these sizes.
  CudnnValue pointwise(cudnnPointwiseMode_t mode, CudnnValue x, const Sizes& sizes, const Pointwise& options,
      cudnnDataType_t type = CUDNN_DATA_FLOAT);

  struct Overrides {
    CudnnValue m = 0, n = 0, k = 0;  // i32 [B, 1, 1, 1]: how much of a sample's axis counts
    bool pad = false;                // what does not count is 0
  };
  void matmul(CudnnValue a, CudnnValue b, CudnnValue c,  // sums in float
      const Overrides& overrides = {.m = 0, .n = 0, .k = 0, .pad = false});
  void reduction(cudnnReduceTensorOp_t op, CudnnValue x, CudnnValue y);
  // y: 1 with `probability`, else 0. seed, offset: i64 [1, 1, 1, 1] in memory.
  void random(double probability, CudnnValue seed, CudnnValue offset, CudnnValue y);
  void reshape(CudnnValue x, CudnnValue y);

  struct Convolution {
    Sizes before, after, strides, dilations;  // padding before and after; one for each spatial axis
  };
  // x [N, C, H, W], w [K, C, R, S], y [N, K, P, Q] with any strides
  void convolution(const Convolution& convolution, CudnnValue x, CudnnValue w, CudnnValue y);
  void convolution_input_gradient(const Convolution& convolution, CudnnValue dy, CudnnValue w, CudnnValue dx);
  void convolution_weight_gradient(const Convolution& convolution, CudnnValue x, CudnnValue dy, CudnnValue dw);

  // Without tensor cores products are of fp32, with them of TF32.
  void use_tensor_cores(bool use) { tensor_cores_ = use; }

  // A deterministic kernel that passed cuDNN's checks for the target, not compiled yet.
  struct Candidate {
    CudnnDescriptor config;
    size_t workspace;  // bytes
  };
  std::vector<Candidate> candidates(const CudnnTarget& target, std::string* why = nullptr);
  // The best deterministic plan by cuDNN's estimate (its heuristics A, then B, then the fallback's) with a workspace of
  // at most `workspace` bytes; null, and in `why` the last refusal, when there is none. Add no operation after.
  std::shared_ptr<CudnnPlan> plan(
      const CudnnTarget& target, std::string* why = nullptr, size_t workspace = std::numeric_limits<size_t>::max());

 private:
  CudnnValue add_tensor(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides, bool is_virtual, bool by_value);
  const CudnnDescriptor& of(CudnnValue value) const { return tensors_[value - 1]; }
  CudnnDescriptor& part(cudnnBackendDescriptorType_t type) { return parts_.emplace_back(type); }
  CudnnDescriptor& operation(cudnnBackendDescriptorType_t type) { return operations_.emplace_back(type); }
  struct ConvolutionNames;
  void add_convolution(const ConvolutionNames& names, const Convolution& c, CudnnValue x, CudnnValue w, CudnnValue y);
  void add_candidates(const CudnnDescriptor& graph, const CudnnTarget& target, cudnnBackendHeurMode_t mode,
      std::vector<Candidate>& found, std::string* why);

  std::deque<CudnnDescriptor> tensors_, parts_, operations_;
  std::optional<CudnnDescriptor> graph_;
  bool tensor_cores_ = true;
  std::vector<std::pair<CudnnValue, float>> numbers_;
};
}  // namespace linnet
