#include "kernels/parallel.h"
#include "ops/pixels/pixels.h"

namespace linnet {
namespace {

void run_reference(const KernelArgs& args) {
  const PixelScaling& scaling = args.node.attrs.as<ScalePixelsAttrs>().scaling;
  const auto channels = static_cast<int64_t>(scaling.scale.size());
  const auto* x = args.in[0].as<const uint8_t>();
  for_float(args.out[0].type.dtype, [&]<class T>() {
    T* y = args.out[0].as<T>();
    for_ranges(args.pool, args.in[0].elements() / channels, channels, [&](int64_t begin, int64_t end) {
      for (int64_t pixel = begin; pixel < end; ++pixel)
        for (int64_t c = 0; c < channels; ++c)
          y[pixel * channels + c] = static_cast<T>(x[pixel * channels + c]) * scaling.scale[static_cast<size_t>(c)] +
                                    scaling.shift[static_cast<size_t>(c)];
    });
  });
}

constexpr Kernel kKernels[] = {{"reference", nullptr, nullptr, run_reference}};

}  // namespace

KernelList scale_pixels_kernels() { return kKernels; }

}  // namespace linnet
