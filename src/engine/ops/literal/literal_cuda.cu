// A literal on the device: its elements are copied there with every run.
#include "engine/ops/literal/literal.h"

namespace linnet {
namespace {

void run(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<LiteralAttrs>();
  if (attrs.type.bytes() > 0)
    args.device->upload(args.out[0].as<std::byte>(), reinterpret_cast<const std::byte*>(attrs.words.data()),
                        attrs.type.bytes());
}

constexpr Kernel kKernels[] = {{"upload", nullptr, nullptr, run}};

}  // namespace

KernelList literal_cuda_kernels() { return kKernels; }

}  // namespace linnet
