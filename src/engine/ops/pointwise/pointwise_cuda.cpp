// Elementwise expressions on a GPU: a kernel is generated and compiled for each expression at first use.
#include <algorithm>
#include "base/numbers.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/libraries.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {
// A thread's elements fill 16 bytes of the narrowest type if there are enough of them to fill a GPU.
constexpr int64_t kManyElements = int64_t{1} << 20;
constexpr const char* kName = "pointwise";  // of generated kernels

bool is_aligned(const TensorView& view, int step) {
  const size_t bytes = std::min<size_t>(16, static_cast<size_t>(step) * dtype_size(view.type.dtype));
  return reinterpret_cast<uintptr_t>(view.data) % bytes == 0;
}

bool fits(const KernelArgs& args, const PointwiseArguments& arguments, const PointwiseSource& source, int step) {
  bool fit = arguments.count % step == 0 && is_aligned(args.out[0], step);
  for (size_t k = 0; k < args.in.size(); ++k) {
    const Broadcast kind = source.operands[k].kind;
    if (kind == Broadcast::kScalar) continue;
    if (kind != Broadcast::kFull) fit = fit && arguments.size[k] % step == 0;
    if (kind != Broadcast::kPrefix) fit = fit && is_aligned(args.in[k], step);
  }
  return fit;
}

int step_of(const KernelArgs& args, const PointwiseArguments& arguments, const PointwiseSource& source) {
  bool any_bf16 = source.result == DType::kBF16;
  for (const auto& operand : source.operands) any_bf16 = any_bf16 || operand.dtype == DType::kBF16;
  // More operands would need too many registers.
  if (any_bf16 && args.in.size() <= 6 && arguments.count >= kManyElements && fits(args, arguments, source, 8)) return 8;
  return fits(args, arguments, source, 4) ? 4 : 1;
}

bool repeats_no_middle(const KernelQuery& query) {
  return std::ranges::none_of(query.in,
      [&](const TensorType& in) { return find_broadcast(in.shape, query.out[0].shape) == Broadcast::kMiddle; });
}

// The first call with a source compiles and loads it; that must not be inside a recording.
struct LoadedKernel {
  ~LoadedKernel() { cudaLibraryUnload(library); }
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
};

std::shared_ptr<LoadedKernel> load(const CudaDevice& device, const std::string& source) {
  if (device.recording()) fail_internal("a kernel is compiled inside a recording");
  const std::string cubin = compile_cuda(source, device.compute_capability());
  auto loaded = std::make_shared<LoadedKernel>();
  cuda_check(cudaLibraryLoadData(&loaded->library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
      "loading a compiled kernel");
  cuda_check(cudaLibraryGetKernel(&loaded->kernel, loaded->library, kName), "finding a compiled kernel");
  return loaded;
}

void run(const KernelArgs& args) {
  const TensorView& out = args.out[0];
  PointwiseSource source{.expression = args.attrs<PointwiseAttrs>().expression, .result = out.type.dtype};
  PointwiseArguments arguments{};
  arguments.count = out.elements();
  arguments.out = out.data;
  if (arguments.count == 0) return;
  for (size_t k = 0; k < args.in.size(); ++k) {
    const TensorView& in = args.in[k];
    const Broadcast kind = *find_broadcast(in.shape(), out.shape());
    source.operands.push_back({in.type.dtype, kind});
    arguments.in[k] = in.data;
    arguments.size[k] = kind == Broadcast::kPrefix ? arguments.count / in.elements() : in.elements();
  }
  source.step = step_of(args, arguments, source);
  source.wide_indices = arguments.count >= int64_t{1} << 31;
  const std::string text = pointwise_prelude() + pointwise_arguments_text() + pointwise_kernel(source, kName);
  auto& device = *static_cast<CudaDevice*>(args.device);
  const auto& loaded = device.prepared<LoadedKernel>("compiled " + text, [&] { return load(device, text); });
  const auto blocks = static_cast<unsigned>(ceil_div(arguments.count, int64_t{kPointwiseThreads} * source.step));
  void* parameters[] = {&arguments};
  device.launch(static_cast<const void*>(loaded.kernel), blocks, kPointwiseThreads, 0, parameters, 90);
}
}  // namespace

LINNET_KERNELS(pointwise_cuda, {"generated", run, repeats_no_middle})
}  // namespace linnet
