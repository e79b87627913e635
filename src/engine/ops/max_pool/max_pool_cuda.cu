// Pooling of images, channels last: a thread for each result, backward for each element of the image.
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/max_pool/max_pool.h"

namespace linnet {
namespace {
// image [N, height, width, channels], result [N, rows, columns, channels]
struct Pool {
  int64_t height, width, rows, columns, channels;
  int size, stride;
};

template <class T> LINNET_DEVICE void pool_window(int64_t i, Pool pool, const T* x, T* y, uint8_t* locations) {
  const auto [window, c] = divided(i, pool.channels);
  const auto [line, column] = divided(window, pool.columns);
  const auto [image, row] = divided(line, pool.rows);
  x += ((image * pool.height + row * pool.stride) * pool.width + column * pool.stride) * pool.channels + c;
  float largest = to_float(x[0]);
  int location = 0;
  for (int h = 0; h < pool.size; ++h)
    for (int w = 0; w < pool.size; ++w) {
      const float value = to_float(x[(h * pool.width + w) * pool.channels]);
      if (value > largest || value != value) largest = value, location = h * pool.size + w;
    }
  y[i] = from_float<T>(largest);
  locations[i] = static_cast<uint8_t>(location);
}

template <class T>
LINNET_DEVICE void gather_slopes(int64_t i, Pool pool, const T* dy, const uint8_t* locations, T* dx) {
  const auto [pixel, c] = divided(i, pool.channels);
  const auto [line, w] = divided(pixel, pool.width);
  const auto [image, h] = divided(line, pool.height);
  // Windows from the first that reaches here to the last that begins here.
  const auto first = [&](int64_t at) {
    return divided(max(int64_t{0}, at - pool.size + pool.stride), pool.stride).quotient;
  };
  const int64_t last_row = min(divided(h, pool.stride).quotient, pool.rows - 1);
  const int64_t last_column = min(divided(w, pool.stride).quotient, pool.columns - 1);
  float sum = 0;
  for (int64_t row = first(h); row <= last_row; ++row)
    for (int64_t column = first(w); column <= last_column; ++column) {
      const int64_t at = ((image * pool.rows + row) * pool.columns + column) * pool.channels + c;
      const int64_t location = (h - row * pool.stride) * pool.size + w - column * pool.stride;
      if (locations[at] == location) sum += to_float(dy[at]);
    }
  dx[i] = from_float<T>(sum);
}

Pool pool_of(const MaxPoolAttrs& attrs, const Shape& image, const Shape& result) {
  return {.height = image[1],
      .width = image[2],
      .rows = result[1],
      .columns = result[2],
      .channels = image[3],
      .size = static_cast<int>(attrs.size),
      .stride = static_cast<int>(attrs.stride)};
}

void run(const KernelArgs& args) {
  const Pool pool = pool_of(args.attrs<MaxPoolAttrs>(), args.in[0].shape(), args.out[0].shape());
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch_elements<pool_window<T>>(
        args.device, args.out[0].elements(), pool, args.in[0].as<T>(), args.out[0].as<T>(), args.out[1].as<uint8_t>());
  });
}

void run_grad(const KernelArgs& args) {
  const Pool pool = pool_of(args.attrs<MaxPoolAttrs>(), args.out[0].shape(), args.in[0].shape());
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch_elements<gather_slopes<T>>(
        args.device, args.out[0].elements(), pool, args.in[0].as<T>(), args.in[1].as<uint8_t>(), args.out[0].as<T>());
  });
}
}  // namespace

LINNET_KERNELS(max_pool_cuda, {"windows", nullptr, nullptr, run})
LINNET_KERNELS(max_pool_grad_cuda, {"elements", nullptr, nullptr, run_grad})
}  // namespace linnet
