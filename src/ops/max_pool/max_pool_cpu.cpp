#include <algorithm>
#include <cmath>

#include "ops/max_pool/max_pool.h"
#include "ops/stored_operands.h"

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

constexpr int64_t kBlock = 64;  // channels

// A row of results at a time, all channels of a window's element together, so that the compiler makes vectors of it.
template <class T>
void largest_of_rows(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<MaxPoolAttrs>();
  const Shape &image = args.in[0].shape(), &result = args.out[0].shape();
  const int64_t channels = image[3];
  args.pool.run(result[0] * result[1], [&](int64_t task, int) {
    const T* rows =
        args.in[0].as<T>() + (task / result[1] * image[1] + task % result[1] * attrs.stride) * image[2] * channels;
    for (int64_t column = 0; column < result[2]; ++column)
      for (int64_t block = 0; block < channels; block += kBlock) {
        const int64_t count = std::min(kBlock, channels - block);
        const T* first = rows + column * attrs.stride * channels + block;
        float largest[kBlock];
        int32_t where[kBlock] = {};
        std::copy_n(first, count, largest);
        for (int64_t i = 1; i < attrs.size * attrs.size; ++i) {
          const T* x = first + (i / attrs.size * image[2] + i % attrs.size) * channels;
          for (int64_t c = 0; c < count; ++c) {
            const float value = x[c];
            const bool is_larger = (value > largest[c]) | (value != value);  // or NaN
            largest[c] = is_larger ? value : largest[c];
            where[c] = is_larger ? static_cast<int32_t>(i) : where[c];
          }
        }
        const int64_t out = (task * result[2] + column) * channels + block;
        for (int64_t c = 0; c < count; ++c) {
          args.out[0].as<T>()[out + c] = T(largest[c]);  // one of the values: nothing is rounded
          args.out[1].as<uint8_t>()[out + c] = static_cast<uint8_t>(where[c]);
        }
      }
  });
}

void run(const KernelArgs& args) {
  (args.out[0].type.dtype == DType::kBF16 ? largest_of_rows<Bfloat16> : largest_of_rows<float>)(args);
}

// A row of the image at a time, of all windows that meet it: sums are fp32 until the row is complete.
template <class T>
void gradient_of_rows(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<MaxPoolAttrs>();
  const Shape &image = args.out[0].shape(), &result = args.in[0].shape();
  const int64_t channels = image[3], row_size = image[2] * channels;
  args.pool.run(image[0] * image[1], [&](int64_t task, int worker) {
    const int64_t n = task / image[1], row = task % image[1];
    float* const sums = reinterpret_cast<float*>(args.workspace) + worker * row_size;
    std::fill_n(sums, row_size, 0.0f);
    const int64_t first = std::max<int64_t>(0, (row - attrs.size + attrs.stride) / attrs.stride);
    const int64_t last = std::min(result[1] - 1, row / attrs.stride);
    for (int64_t window_row = first; window_row <= last; ++window_row) {
      const int64_t inside = (row - window_row * attrs.stride) * attrs.size;  // the row's first element in a window
      for (int64_t column = 0; column < result[2]; ++column) {
        const int64_t at = ((n * result[1] + window_row) * result[2] + column) * channels;
        const T* dy = args.in[0].as<T>() + at;
        const auto* locations = args.in[1].as<uint8_t>() + at;
        float* to = sums + column * attrs.stride * channels;
        for (int64_t i = 0; i < attrs.size; ++i, to += channels)
          for (int64_t c = 0; c < channels; ++c) to[c] += locations[c] == inside + i ? static_cast<float>(dy[c]) : 0.0f;
      }
    }
    T* dx = args.out[0].as<T>() + task * row_size;
    for (int64_t i = 0; i < row_size; ++i) dx[i] = T(sums[i]);
  });
}

void run_grad(const KernelArgs& args) {
  (args.out[0].type.dtype == DType::kBF16 ? gradient_of_rows<Bfloat16> : gradient_of_rows<float>)(args);
}

size_t grad_workspace(const KernelQuery& query) {
  return static_cast<size_t>(query.threads * query.out[0].shape.elements(2, 4)) * sizeof(float);
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

constexpr Kernel kKernels[] = {{"rows", f32_or_all_reduced, nullptr, run},
                               {"reference", nullptr, nullptr, run_reference}};
constexpr Kernel kGradKernels[] = {{"rows", f32_or_all_reduced, grad_workspace, run_grad},
                                   {"reference", nullptr, nullptr, run_grad_reference}};

}  // namespace

KernelList max_pool_kernels() { return kKernels; }
KernelList max_pool_grad_kernels() { return kGradKernels; }

}  // namespace linnet
