#include <algorithm>
#include <cmath>

#include "ops/max_pool/max_pool.h"

namespace linnet {
namespace {

// body(row, column, channel, offset of the window's first element in the image, offset of the result in its image)
template <class Body>
void for_windows(const Shape& image, const Shape& result, int64_t stride, const Body& body) {
  const int64_t width = image[2], channels = image[3];
  int64_t out = 0;
  for (int64_t row = 0; row < result[1]; ++row)
    for (int64_t column = 0; column < result[2]; ++column)
      for (int64_t c = 0; c < channels; ++c, ++out) body((row * stride * width + column * stride) * channels + c, out);
}

// Images are independent.
void run_reference(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<MaxPoolAttrs>();
  const Shape &image = args.in[0].shape(), &result = args.out[0].shape();
  const int64_t image_size = image.elements(1, 4), result_size = result.elements(1, 4);
  for_float(args.in[0].type.dtype, [&]<class T>() {
    args.pool.run(image[0], [&](int64_t n, int) {
      const T* x = args.in[0].as<T>() + n * image_size;
      T* y = args.out[0].as<T>() + n * result_size;
      auto* locations = args.out[1].as<uint8_t>() + n * result_size;
      for_windows(image, result, attrs.stride, [&](int64_t first, int64_t out) {
        T largest = x[first];
        int64_t location = 0;
        for (int64_t i = 1; i < attrs.size * attrs.size; ++i) {
          const T value = x[first + (i / attrs.size * image[2] + i % attrs.size) * image[3]];
          if (value > largest || std::isnan(value)) largest = value, location = i;
        }
        y[out] = largest;
        locations[out] = static_cast<uint8_t>(location);
      });
    });
  });
}

// A row of results at a time, all channels of a window's element together, so that the compiler makes vectors of it.
void run(const KernelArgs& args) {
  constexpr int64_t kBlock = 64;
  const auto& attrs = args.node.attrs.as<MaxPoolAttrs>();
  const Shape &image = args.in[0].shape(), &result = args.out[0].shape();
  const int64_t channels = image[3];
  args.pool.run(result[0] * result[1], [&](int64_t task, int) {
    const float* rows =
        args.in[0].as<float>() + (task / result[1] * image[1] + task % result[1] * attrs.stride) * image[2] * channels;
    for (int64_t column = 0; column < result[2]; ++column)
      for (int64_t block = 0; block < channels; block += kBlock) {
        const int64_t count = std::min(kBlock, channels - block);
        const float* first = rows + column * attrs.stride * channels + block;
        float largest[kBlock];
        int32_t where[kBlock] = {};
        std::copy_n(first, count, largest);
        for (int64_t i = 1; i < attrs.size * attrs.size; ++i) {
          const float* x = first + (i / attrs.size * image[2] + i % attrs.size) * channels;
          for (int64_t c = 0; c < count; ++c) {
            const bool is_larger = (x[c] > largest[c]) | (x[c] != x[c]);  // or NaN
            largest[c] = is_larger ? x[c] : largest[c];
            where[c] = is_larger ? static_cast<int32_t>(i) : where[c];
          }
        }
        const int64_t out = (task * result[2] + column) * channels + block;
        std::copy_n(largest, count, args.out[0].as<float>() + out);
        for (int64_t c = 0; c < count; ++c) args.out[1].as<uint8_t>()[out + c] = static_cast<uint8_t>(where[c]);
      }
  });
}

void run_grad_reference(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<MaxPoolAttrs>();
  const Shape &image = args.out[0].shape(), &result = args.in[0].shape();
  const int64_t image_size = image.elements(1, 4), result_size = result.elements(1, 4);
  for_float(args.out[0].type.dtype, [&]<class T>() {
    args.pool.run(image[0], [&](int64_t n, int) {
      T* dx = args.out[0].as<T>() + n * image_size;
      const T* dy = args.in[0].as<T>() + n * result_size;
      const auto* locations = args.in[1].as<uint8_t>() + n * result_size;
      std::fill_n(dx, image_size, T{0});
      for_windows(image, result, attrs.stride, [&](int64_t first, int64_t out) {
        const int64_t location = locations[out];
        dx[first + (location / attrs.size * image[2] + location % attrs.size) * image[3]] += dy[out];
      });
    });
  });
}

constexpr Kernel kKernels[] = {{"blocks", all_f32, nullptr, run}, {"reference", nullptr, nullptr, run_reference}};
constexpr Kernel kGradKernels[] = {{"reference", nullptr, nullptr, run_grad_reference}};

}  // namespace

KernelList max_pool_kernels() { return kKernels; }
KernelList max_pool_grad_kernels() { return kGradKernels; }

}  // namespace linnet
