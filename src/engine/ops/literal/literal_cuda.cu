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

}  // namespace

LINNET_KERNELS(literal_cuda, {"upload", nullptr, nullptr, run})

}  // namespace linnet
