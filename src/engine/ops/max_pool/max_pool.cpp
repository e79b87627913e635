#include "engine/ops/max_pool/max_pool.h"
#include <algorithm>
#include <cmath>
#include "engine/kernels/conv/max_pool.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_max_pool(const InferArgs& args) {
  const auto& attrs = args.attrs.as<MaxPoolAttrs>();
  expect_inputs(args, 1);
  const TensorType& x = args.in[0];
  expect(is_float(x.dtype) && x.shape.rank() == 4, "got ", x, ", expected floats [N, H, W, C]");
  expect(attrs.size >= 1 && attrs.size <= 15 && attrs.stride >= 1, "window ", attrs.size, ", stride ", attrs.stride);
  TensorType out = x;
  for (int axis : {1, 2}) {
    expect(x.shape[axis] >= attrs.size, "got ", x, ", smaller than the window ", attrs.size);
    out.shape.set(axis, (x.shape[axis] - attrs.size) / attrs.stride + 1);
  }
  return {out, {DType::kU8, out.shape}};
}

std::vector<TensorType> infer_max_pool_grad(const InferArgs& args) {  // dy, places -> dx
  expect_inputs(args, 2);
  expect(args.in[1] == TensorType{DType::kU8, args.in[0].shape}, "got ", args.in[0], " and ", args.in[1]);
  return {{args.in[0].dtype, args.attrs.as<MaxPoolAttrs>().input}};
}

std::vector<Tensor> max_pool_gradient(const GradientArgs& args) {
  MaxPoolAttrs attrs = args.attrs<MaxPoolAttrs>();
  attrs.input = args.in[0].shape();
  return args.add(kMaxPoolGrad, {args.out_grad[0], args.out[1]}, attrs);
}

// body(row, column, channel, offset of the window's first element in the image, offset of the result in its image)
template <class Body> void for_windows(const Shape& image, const Shape& result, int64_t stride, const Body& body) {
  const int64_t width = image[2], channels = image[3];
  int64_t out = 0;
  for (int64_t row = 0; row < result[1]; ++row)
    for (int64_t column = 0; column < result[2]; ++column)
      for (int64_t c = 0; c < channels; ++c, ++out) body((row * stride * width + column * stride) * channels + c, out);
}

void run_max_pool_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<MaxPoolAttrs>();
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

MaxPoolSizes max_pool_sizes_of(const MaxPoolAttrs& attrs, const Shape& image, const Shape& result) {
  return {.images = image[0],
      .height = image[1],
      .width = image[2],
      .channels = image[3],
      .out_height = result[1],
      .out_width = result[2],
      .size = attrs.size,
      .stride = attrs.stride};
}

void run_max_pool(const KernelArgs& args) {
  max_pool_forward(max_pool_sizes_of(args.attrs<MaxPoolAttrs>(), args.in[0].shape(), args.out[0].shape()),
      stored(args.in[0]), mutable_stored(args.out[0]), args.out[1].as<uint8_t>(), args.pool);
}

void run_max_pool_grad(const KernelArgs& args) {
  max_pool_backward(max_pool_sizes_of(args.attrs<MaxPoolAttrs>(), args.out[0].shape(), args.in[0].shape()),
      stored(args.in[0]), args.in[1].as<uint8_t>(), mutable_stored(args.out[0]), args.workspace, args.pool);
}

size_t max_pool_grad_workspace(const KernelQuery& query) {
  return static_cast<size_t>(query.threads * query.out[0].shape.elements(2, 4)) * sizeof(float);
}

void run_max_pool_grad_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<MaxPoolAttrs>();
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
}  // namespace

const OpDef kMaxPool{
    .name = "max_pool", .infer = infer_max_pool, .gradient = max_pool_gradient, .storage = reduced<0b1, 0b1>};
const OpDef kMaxPoolGrad{.name = "max_pool_grad", .infer = infer_max_pool_grad, .storage = reduced<0b1, 0b1>};

Tensor max_pool(At x, int64_t size, int64_t stride) {
  const MaxPoolAttrs attrs{.size = size, .stride = stride ? stride : size};
  return op_result(kMaxPool, x, {}, attrs);
}

LINNET_KERNELS(max_pool, {"simd", f32_or_all_reduced, nullptr, run_max_pool},
    {"reference", nullptr, nullptr, run_max_pool_reference})
LINNET_KERNELS(max_pool_grad, {"simd", f32_or_all_reduced, max_pool_grad_workspace, run_max_pool_grad},
    {"reference", nullptr, nullptr, run_max_pool_grad_reference})
}  // namespace linnet
