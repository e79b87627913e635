#include "cuda_emulation/emulated_backend.h"
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include "engine/kernels/precision.h"
#include "engine/ops/op_table.h"

namespace linnet {
namespace {
// The CPU's kernels know no bf16: operands are widened for them, results rounded.
struct Widened {
  explicit Widened(const TensorView& original) : view(original), original(original) {
    if (original.type.dtype != DType::kBF16) return;
    int64_t last = 1;
    for (int axis = 0; axis < original.shape().rank(); ++axis)
      last += (original.shape()[axis] - 1) * original.strides[axis];
    values.resize(static_cast<size_t>(original.elements() ? last : 0));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::bit_cast<float>(static_cast<uint32_t>(original.as<uint16_t>()[i]) << 16);
    view.type.dtype = DType::kF32;
    view.data = values.data();
  }
  // Only the view's own elements: others' lie between them.
  void store() const {
    if (original.type.dtype != DType::kBF16) return;
    const Shape& shape = original.shape();
    for (int64_t e = 0; e < original.elements(); ++e) {
      int64_t rest = e, location = 0;
      for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        location += rest % shape[axis] * original.strides[axis];
        rest /= shape[axis];
      }
      original.as<uint16_t>()[location] =
          static_cast<uint16_t>(std::bit_cast<uint32_t>(round_to_bf16(values[static_cast<size_t>(location)])) >> 16);
    }
  }
  TensorView view, original;
  std::vector<float> values;
};

void run_on_cpu(const Node& node, const std::vector<TensorView>& in, const std::vector<TensorView>& out) {
  static ThreadPool pool(1);
  std::vector<Widened> operands(in.begin(), in.end()), results(out.begin(), out.end());
  std::vector<TensorView> in_views, out_views;
  std::vector<TensorType> in_types, out_types;
  for (const Widened& w : operands) in_views.push_back(w.view), in_types.push_back(w.view.type);
  for (const Widened& w : results) out_views.push_back(w.view), out_types.push_back(w.view.type);
  const KernelQuery query{node, in_types, out_types, 1, cpu_backend().device};
  const Kernel& kernel = find_kernel(query, KernelSet::kFast, cpu_backend());
  const size_t bytes = kernel.workspace ? kernel.workspace(query) : 0;
  const std::unique_ptr<std::byte, decltype(&std::free)> workspace(
      static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)), &std::free);
  kernel.run({node, in_views, out_views, workspace.get(), pool, cpu_backend().device});
  for (const Widened& w : results) w.store();
}

// In a loaded module (emulated_module.cpp) the program's OpDefs are others than those here.
Node with_own_op(const Node& node) {
  Node own = node;
  for (const OpEntry& entry : all_ops())
    if (std::strcmp(entry.op->name, node.op->name) == 0) own.op = entry.op;
  return own;
}

void queue_on_cpu(const KernelArgs& args) {
  queue_kernel(args.device, [node = with_own_op(args.node), in = std::vector(args.in.begin(), args.in.end()),
                                out = std::vector(args.out.begin(), args.out.end())] { run_on_cpu(node, in, out); });
}

constexpr Kernel kCpuKernel[] = {{"cpu", queue_on_cpu, nullptr, nullptr, /*may_run_aside=*/true}};
}  // namespace

// An op without a CUDA kernel fails its tests, unless a library computes it.
std::vector<BackendOp> emulated_ops() {
  std::vector<BackendOp> ops(cuda_ops().begin(), cuda_ops().end());
  for (const OpEntry& entry : all_ops())
    if (entry.op->by_gpu_library) ops.push_back({entry.op->name, kCpuKernel});
  return ops;
}

const EmulatedBackend& emulated_backend() {
  static EmulatedDevice device;
  static const std::vector<BackendOp> ops = emulated_ops();
  static const EmulatedBackend backend{&device, {&device, ops}};
  return backend;
}
}  // namespace linnet
