// Convolutions by cuDNN, if it has a deterministic kernel in the precision asked for. The tiles of conv2d_cuda.cu do
// the rest, and take operands that are not 16-byte aligned.
#include "base/numbers.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/conv2d/conv2d_graph_cuda.h"

namespace linnet {
// engine/ops/conv2d/conv2d_cuda.cu
KernelList conv2d_cuda_kernels();
KernelList conv2d_input_grad_cuda_kernels();
KernelList conv2d_weight_grad_cuda_kernels();

namespace {
using Kind = ConvolutionPass;

struct Prepared {
  std::shared_ptr<CudnnPlan> plan;  // null: cuDNN has none
  CudnnValue x = 0, weight = 0, y = 0;
};

ConvolutionProblem problem_of(
    Kind kind, const Node& node, const TensorType& x, const TensorType& weight, const TensorType& y) {
  const auto& attrs = node.attrs.as<Conv2dAttrs>();
  return {.kind = kind,
      .x = x.shape,
      .weight = weight.shape,
      .y = y.shape,
      .stride = attrs.stride,
      .padding = attrs.padding,
      .dilation = attrs.dilation,
      .dtype = x.dtype,
      .tensor_cores = x.dtype == DType::kBF16 || attrs.precision != Precision::kF32};
}

Prepared& prepared(Device* device, const ConvolutionProblem& problem) {
  auto& cuda = *static_cast<CudaDevice*>(device);
  return cuda.prepared<Prepared>("conv2d " + problem.text(), [&] {
    const ConvolutionGraph made = convolution_graph(problem);
    return std::make_shared<Prepared>(Prepared{made.graph->plan(CudnnTarget::of(cuda)), made.x, made.weight, made.y});
  });
}

template <Kind kind> Prepared& prepared(const KernelQuery& query) {
  const auto r = conv2d_roles<kind>(query.in, query.out);
  return prepared(query.device, problem_of(kind, query.node, r.x, r.weight, r.y));
}

template <Kind kind> const Kernel& own_kernel() {
  return (kind == Kind::kForward         ? conv2d_cuda_kernels()
          : kind == Kind::kInputGradient ? conv2d_input_grad_cuda_kernels()
                                         : conv2d_weight_grad_cuda_kernels())[0];
}

template <Kind kind> bool supports(const KernelQuery& query) {
  const auto r = conv2d_roles<kind>(query.in, query.out);
  if (r.x.shape.elements() == 0 || r.y.shape.elements() == 0) return false;
  // With two bf16 channels cuDNN's filter gradients were wrong on an H200 (cuDNN 9 with PyTorch 2.11).
  if (kind == Kind::kWeightGradient && r.x.dtype == DType::kBF16 && r.x.shape[3] == 2) return false;
  if (kind != Kind::kWeightGradient && r.weight.dtype != r.x.dtype) return false;
  return own_kernel<kind>().supports(query) && cudnn_version(static_cast<CudaDevice&>(*query.device)) != 0 &&
         prepared<kind>(query).plan != nullptr;
}

// A copy of the weights, which may be unaligned in the flat parameters, and cuDNN's own.
template <Kind kind> size_t workspace(const KernelQuery& query) {
  const auto r = conv2d_roles<kind>(query.in, query.out);
  const Kernel& own = own_kernel<kind>();
  return std::max(round_up(r.weight.bytes(), 256) + prepared<kind>(query).plan->workspace(),
      own.workspace ? own.workspace(query) : 0);
}

bool aligned(const void* location) { return reinterpret_cast<uintptr_t>(location) % 16 == 0; }

template <Kind kind> void run(const KernelArgs& args) {
  const auto r = conv2d_roles<kind>(args.in, args.out);
  if (!aligned(r.x.data) || !aligned(r.y.data)) return own_kernel<kind>().run(args);
  auto& device = *static_cast<CudaDevice*>(args.device);
  Prepared& p = prepared(args.device, problem_of(kind, args.node, r.x.type, r.weight.type, r.y.type));
  const size_t bytes = r.weight.type.bytes();
  auto* weight = static_cast<std::byte*>(r.weight.data);
  std::byte* const location = aligned(weight) ? weight : args.workspace;
  if (kind != Kind::kWeightGradient && location != weight) device.copy(location, weight, bytes);
  p.plan->run(device, {{p.x, r.x.data}, {p.weight, location}, {p.y, r.y.data}}, args.workspace + round_up(bytes, 256));
  if (kind == Kind::kWeightGradient && location != weight) device.copy(weight, location, bytes);
}

template <Kind kind> constexpr Kernel kKernel[] = {{"cudnn", run<kind>, supports<kind>, workspace<kind>}};
}  // namespace

KernelList conv2d_cudnn_kernels() { return kKernel<Kind::kForward>; }
KernelList conv2d_input_grad_cudnn_kernels() { return kKernel<Kind::kInputGradient>; }
KernelList conv2d_weight_grad_cudnn_kernels() { return kKernel<Kind::kWeightGradient>; }
}  // namespace linnet
