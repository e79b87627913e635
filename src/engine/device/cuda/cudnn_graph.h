// cuDNN's graph interface: tensors and operations are described, cuDNN answers with plans - compiled kernels - that
// compute all of them at once. Only deterministic plans are taken.
//
//   CudnnGraph graph;
//   const auto x = graph.tensor(CUDNN_DATA_BFLOAT16, {b, m, k}, strides), w = graph.tensor(...), y = graph.tensor(...);
//   graph.matmul(x, w, y);
//   std::shared_ptr<CudnnPlan> plan = graph.plan(CudnnTarget::of(device), &why);   // null: no plan, and why
//   plan->run(device, {{x, x_data}, {w, w_data}, {y, y_data}}, workspace);         // plan->workspace() bytes
//
// The library is opened when the first of these is made (libraries.h). Kernels can be looked for (candidates) for a GPU
// that is only described, by its properties as JSON; cuDNN then needs a libcuda.so.1 to load, for which the toolkit's
// stub does.
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

// cuDNN's version, as 91900; 0 when there is no libcudnn, or LINNET_CUDNN=off says to do without it. Opens it.
size_t cudnn_version();
// 0, too, where it cannot open this GPU, of which it warns once.
size_t cudnn_version(CudaDevice& device);

// A finalized descriptor or one that is being filled. Error(kSystem) with cuDNN's own words.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  ~CudnnDescriptor();

  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                       const void* values);
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
  // False, with the reason, where cuDNN refuses.
  bool try_finalize(std::string* why);
  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// The GPU that plans are for.
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
  // Queues it. `memory`: where each tensor that is not virtual and no number lies. Not thread-safe.
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
  // A value between operations. Without strides: dense.
  CudnnValue between(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides = {});
  CudnnValue number(float value);  // a constant of rank 4

  struct Pointwise {
    CudnnValue b = 0, t = 0;  // the second operand; the condition of BINARY_SELECT
    int64_t axis = -1;        // of GEN_INDEX
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  };
  // y = mode(x, b)
  void pointwise(cudnnPointwiseMode_t mode, CudnnValue x, CudnnValue y,
                 const Pointwise& options = {.b = 0, .t = 0, .axis = -1, .compute = CUDNN_DATA_FLOAT});
  // The same with a new value of `type` and the sizes given.
  CudnnValue pointwise(cudnnPointwiseMode_t mode, CudnnValue x, const Sizes& sizes, const Pointwise& options,
                       cudnnDataType_t type = CUDNN_DATA_FLOAT);

  struct Overrides {
    CudnnValue m = 0, n = 0, k = 0;  // i32 [B, 1, 1, 1]: how much of a sample's axis counts
    bool pad = false;                // what does not count is 0
  };
  // c = a b, sums in float
  void matmul(CudnnValue a, CudnnValue b, CudnnValue c,
              const Overrides& overrides = {.m = 0, .n = 0, .k = 0, .pad = false});
  void reduction(cudnnReduceTensorOp_t op, CudnnValue x, CudnnValue y);
  // y: 1 with `probability`, else 0. seed, offset: i64 [1, 1, 1, 1] in memory.
  void random(double probability, CudnnValue seed, CudnnValue offset, CudnnValue y);
  void reshape(CudnnValue x, CudnnValue y);

  struct Convolution {
    Sizes before, after, strides, dilations;  // padding before and after; one for each spatial axis
  };
  // x [N, C, H, W], w [K, C, R, S], y [N, K, P, Q] in any memory order (strides)
  void convolution(const Convolution& convolution, CudnnValue x, CudnnValue w, CudnnValue y);
  void convolution_input_gradient(const Convolution& convolution, CudnnValue dy, CudnnValue w, CudnnValue dx);
  void convolution_weight_gradient(const Convolution& convolution, CudnnValue x, CudnnValue dy, CudnnValue dw);

  // Without tensor cores products of floats are those of floats; with them, of what TF32 keeps of them.
  void use_tensor_cores(bool use) { tensor_cores_ = use; }

  // A kernel that passed cuDNN's checks for the target and is deterministic, not compiled yet.
  struct Candidate {
    CudnnDescriptor config;
    size_t workspace;  // bytes
  };
  std::vector<Candidate> candidates(const CudnnTarget& target, std::string* why = nullptr);
  // The best deterministic plan by cuDNN's estimate (its heuristics A, then B, then the fallback's) with a workspace of
  // at most `workspace` bytes; null, and in `why` the last refusal, when there is none. No operation may be added
  // after.
  std::shared_ptr<CudnnPlan> plan(const CudnnTarget& target, std::string* why = nullptr,
                                  size_t workspace = std::numeric_limits<size_t>::max());

 private:
  CudnnValue add_tensor(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides, bool is_virtual, bool by_value);
  const CudnnDescriptor& of(CudnnValue value) const { return tensors_[static_cast<size_t>(value - 1)]; }
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
