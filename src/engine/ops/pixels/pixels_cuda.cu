// Bytes as numbers, four in one access.
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/pixels/pixels.h"

namespace linnet {
namespace {

constexpr int kThreads = 256, kMaxChannels = 64;

struct Channels {
  float scale[kMaxChannels], shift[kMaxChannels];
};

template <class T>
__global__ void __launch_bounds__(kThreads) scale_kernel(int64_t count, int channels, bool aligned, Channels scaling,
                                                         const uint8_t* __restrict__ x, T* __restrict__ y) {
  begin_kernel();
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 4;
  if (begin >= count) return;
  const bool whole = aligned && begin + 4 <= count;
  int channel = static_cast<int>(begin % channels);
  Four<uint8_t> bytes;
  float values[4];
  if (whole) bytes = *reinterpret_cast<const Four<uint8_t>*>(x + begin);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (!whole) bytes.at[k] = begin + k < count ? x[begin + k] : 0;
    // Rounded twice, as on the CPU.
    values[k] = __fadd_rn(__fmul_rn(static_cast<float>(bytes.at[k]), scaling.scale[channel]), scaling.shift[channel]);
    if (++channel == channels) channel = 0;
  }
  if (whole) {
    store4(y + begin, values);
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (begin + k < count) y[begin + k] = from_float<T>(values[k]);
  }
}

bool supports(const KernelQuery& query) {
  return query.node.attrs.as<ScalePixelsAttrs>().scaling.scale.size() <= kMaxChannels;
}

void run(const KernelArgs& args) {
  const PixelScaling& scaling = args.node.attrs.as<ScalePixelsAttrs>().scaling;
  Channels channels{};
  for (size_t c = 0; c < scaling.scale.size(); ++c)
    channels.scale[c] = scaling.scale[c], channels.shift[c] = scaling.shift[c];
  const int64_t count = args.in[0].elements();
  const auto* x = args.in[0].as<const uint8_t>();
  for_storage(args.out[0].type.dtype, [&]<class T>() {
    T* y = args.out[0].as<T>();
    const bool aligned =
        reinterpret_cast<uintptr_t>(x) % 4 == 0 && reinterpret_cast<uintptr_t>(y) % sizeof(Four<T>) == 0;
    launch(args.device, scale_kernel<T>, blocks_for(count, 4 * kThreads), kThreads, 0, count,
           static_cast<int>(scaling.scale.size()), aligned, channels, x, y);
  });
}

}  // namespace

LINNET_KERNELS(scale_pixels_cuda, {"bytes", supports, nullptr, run})

}  // namespace linnet
