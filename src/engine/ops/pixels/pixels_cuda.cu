// Bytes as numbers, four in one access.
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/pixels/pixels.h"

namespace linnet {
namespace {
constexpr int kMaxChannels = 64;

struct Channels {
  float scale[kMaxChannels], shift[kMaxChannels];
};

template <class T> LINNET_DEVICE void scale_four(
    int64_t i, int64_t count, int channels, bool aligned, Channels scaling, const uint8_t* x, T* y) {
  const int64_t begin = i * 4;
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
  store_up_to_4(y + begin, count - begin, whole, values);
}

bool supports(const KernelQuery& query) { return query.attrs<ScalePixelsAttrs>().scaling.scale.size() <= kMaxChannels; }

void run(const KernelArgs& args) {
  const PixelScaling& scaling = args.attrs<ScalePixelsAttrs>().scaling;
  Channels channels{};
  for (size_t c = 0; c < scaling.scale.size(); ++c)
    channels.scale[c] = scaling.scale[c], channels.shift[c] = scaling.shift[c];
  const int64_t count = args.in[0].elements();
  const auto* x = args.in[0].as<const uint8_t>();
  for_storage(args.out[0].type.dtype, [&]<class T>() {
    T* y = args.out[0].as<T>();
    launch_elements<scale_four<T>>(args.device, (count + 3) / 4, count, static_cast<int>(scaling.scale.size()),
        aligned4(x) && aligned4(y), channels, x, y);
  });
}
}  // namespace

LINNET_KERNELS(scale_pixels_cuda, {"bytes", run, supports})
}  // namespace linnet
